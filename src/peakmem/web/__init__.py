"""The page and what answers it: `answer.estimate_json`, one function behind the server, the browser and the files."""
