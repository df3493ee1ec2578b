"""The track whose rules a submission file is judged by."""

from contextlib import suppress
from pathlib import Path

from keystone.indexing.errors import UnclearTrack, UserError
from keystone.runs.pipeline.file_names import CONFIG
from keystone.runs.pipeline.made_config import read_run_config
from keystone.runs.track_rules import TRACKS, Track
from keystone.runs.tracks.validate import detect_track, find_tracks_by_name


def find_track(path: Path, option: str) -> Track:
    """Find the track of a file: that of the run whose directory it is in, or else the one that `detect_track` finds.

    If neither finds one, the error advises the option by which a user can name the track.
    """
    if (path.parent / CONFIG).is_file():
        with suppress(UserError):  # a configuration of another program says nothing
            config = read_run_config(path.parent)
            if config.track in {track.name for track in find_tracks_by_name(path)}:
                return TRACKS[str(config.track)]
    try:
        return detect_track(path)
    except UnclearTrack as error:
        raise UserError(f"{error}; name the track with {option}") from None
