//! Tests of the tiering rules.
