//! One line per target.

/// The lines so far.
#[derive(Default)]
pub(crate) struct Report {
    met: usize,
    missed: usize,
}

impl Report {
    /// Something that is measured for its own sake.
    pub(crate) fn note(&self, what: &str, measured: &str) {
        println!("{what:<85} {:>8} {measured:>9}", "");
    }

    pub(crate) fn at_least(&mut self, what: &str, target: f64, measured: f64, note: &str) {
        let is_met = measured >= target;
        self.line(what, &format!(">= {target:.2}"), &format!("{measured:.2}"), is_met, note);
    }

    pub(crate) fn at_most(&mut self, what: &str, target: f64, measured: f64, note: &str) {
        let is_met = measured <= target;
        self.line(what, &format!("<= {target:.2}"), &format!("{measured:.2}"), is_met, note);
    }

    fn line(&mut self, what: &str, target: &str, measured: &str, is_met: bool, note: &str) {
        let verdict = if is_met { "met" } else { "missed" };
        println!("{what:<85} {target:>8} {measured:>7}  {verdict:<6}  {note}");
        if is_met {
            self.met += 1;
        } else {
            self.missed += 1;
        }
    }

    pub(crate) fn missed(&self) -> usize {
        self.missed
    }

    pub(crate) fn finish(&self) {
        println!("{} met, {} missed", self.met, self.missed);
    }
}
