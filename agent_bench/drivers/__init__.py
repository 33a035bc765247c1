"""One program for each agent: it takes a job, and ends when its agent does."""
