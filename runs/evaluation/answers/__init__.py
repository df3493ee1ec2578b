"""Measures of answers and of the evidence behind them, as the papers on readers took them."""
