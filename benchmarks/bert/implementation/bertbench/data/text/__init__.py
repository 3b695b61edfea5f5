"""Turn text into samples: corpus, vocabulary, sample creation, and MLPerf's own recipe."""
