//! What a value holds, told one part at a time, with the names the specification uses.

use crate::wire::WireStr;

/// Told of every part of a value, in wire order, as [`Encode::visit`](crate::Encode::visit) goes through it.
///
/// A list is `open_list`, its elements, `close`. A record is `open_record`, then for each of its fields `name` and the
/// value, then `close`. An outcome is a record of one field, `ok` or `err`; a variant is a record of one field, the
/// alternative's name; a UUID is a list of its two halves.
pub trait Visitor {
    /// A number without sign.
    fn unsigned(&mut self, value: u64);
    /// A number with sign.
    fn signed(&mut self, value: i64);
    /// A boolean.
    fn boolean(&mut self, value: bool);
    /// A string.
    fn text(&mut self, value: WireStr<'_>);
    /// An absent optional, or a result that holds nothing.
    fn nothing(&mut self);
    /// A list begins.
    fn open_list(&mut self, len: usize);
    /// A record begins.
    fn open_record(&mut self);
    /// The next value belongs to this field.
    fn name(&mut self, name: &'static str);
    /// The list or record opened last is complete.
    fn close(&mut self);
}
