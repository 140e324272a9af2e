"""The command line: one small module a command, imported when that command is used."""
