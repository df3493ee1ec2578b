"""Tournaments of answers: battles of pairs, Bradley-Terry ratings, and the arena files of the track's evaluator."""
