//! The profiles once more, from what the profiler printed.

use std::fs;

use crate::profile::{Profile, counts_of, listing_path, summary};
use crate::record::{Both, MeasureRecord};

use super::Check;

impl Check<'_> {
    /// A profile decides nothing, but what the report shows of it must be what the profiler printed.
    pub(super) fn profile(&mut self, stated: &MeasureRecord) {
        let Some(Profile::Taken(found)) = &stated.profile else { return };
        let what = format!("row {}: profile", stated.row);
        let read = |side| fs::read_to_string(self.dir.join(listing_path(&stated.row, side)));
        let counts = Both::try_make(|side| read(side).map(|listing| counts_of(&listing)));
        let counts = match counts {
            Ok(counts) => counts,
            Err(error) => return self.disagree(format!("{what}: read its listings: {error}")),
        };
        let row = self.report.rows.iter().find(|row| row.row == stated.row);
        let is_equal = row.is_some_and(|row| row.equal);
        let again = summary(found.tool.clone(), found.frequency_hz, is_equal, &counts);
        self.compare(&what, found, &again);
    }
}
