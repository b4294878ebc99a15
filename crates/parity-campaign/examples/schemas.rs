//! Prints every JSON schema, each after a line `== NAME`; `cargo xtask codegen` keeps them in `docs/schema`:
//!
//! ```text
//! cargo run -p parity-campaign --features schema --example schemas
//! ```

fn main() {
    for (name, schema) in parity_campaign::schemas() {
        println!("== {name}\n{schema:#}");
    }
}
