"""Small trainings as the public writes them, one for each kind of loop, to be run plain and guarded."""
