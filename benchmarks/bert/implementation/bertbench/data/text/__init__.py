"""From text to samples: corpus, vocabulary, sample generation, and MLPerf's own recipe."""
