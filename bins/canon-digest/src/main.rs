//! The `canon-digest` command.

fn main() {}
