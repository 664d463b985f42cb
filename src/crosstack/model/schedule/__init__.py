"""When tasks run: events, and closed forms of pipelines."""
