"""VideoMME, without and with subtitles."""
