//! Writes the canonical form of a document that was indexed: its grammar is known to be right.

use std::io;

use crate::Form;
use crate::members::{Index, Order, Position, key_end};
use crate::simd::{Block, Outline, Task, Vector};
use crate::structure::{Indexed, find_escaped};
use crate::text::{Number, Text};
use crate::write::{push_escaped, push_number};

/// Where canonical text goes.
pub(crate) trait Sink {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;
}

/// Text on its way to a sink.
struct Buffer<'s, S> {
    bytes: Box<[u8]>,
    length: usize,
    sink: &'s mut S,
}

/// How much is collected before the sink gets it.
const CAPACITY: usize = 1 << 15;

impl<'s, S: Sink> Buffer<'s, S> {
    fn new(sink: &'s mut S) -> Self {
        // Room for one more block, of which not all bytes count.
        Buffer { bytes: vec![0; CAPACITY + 64].into(), length: 0, sink }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.put(&self.bytes[..self.length])?;
        self.length = 0;
        Ok(())
    }

    /// A block to write into; `length` then grows by what counts of it.
    #[inline(always)]
    fn block(&mut self) -> io::Result<&mut Block> {
        if self.length >= CAPACITY {
            self.flush()?;
        }
        Ok(self.bytes[self.length..].first_chunk_mut().expect("there is always room for a block"))
    }

    #[inline(always)]
    fn push(&mut self, byte: u8) -> io::Result<()> {
        self.block()?[0] = byte;
        self.length += 1;
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.length + bytes.len() > CAPACITY {
            self.flush()?;
        }
        if bytes.len() > CAPACITY {
            return self.sink.put(bytes);
        }
        self.bytes[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
        Ok(())
    }
}

/// Why a stretch of text ends.
#[derive(Clone, Copy)]
enum End {
    /// A recorded container begins here.
    Record,
    /// A member or element ends here, before a comma or a closing bracket.
    Member,
    /// The document ends.
    Document,
}

/// Where the writer is in the input.
struct Place {
    at: usize,
    /// How many containers are open since the member began.
    depth: usize,
    /// The next record.
    record: usize,
}

/// A recorded container that is being written.
struct Frame<'i, O> {
    order: Order<'i, O>,
    record: usize,
    /// The next member.
    member: usize,
    /// Whether there are other recorded containers in it.
    has_records: bool,
    /// How deep in the member around it the container stands.
    depth: usize,
}

/// Writes a whole document.
pub(crate) struct Emit<'a, S, O> {
    pub(crate) input: &'a [u8],
    pub(crate) form: Form,
    pub(crate) indexed: &'a Indexed<O>,
    pub(crate) sink: &'a mut S,
}

impl<S: Sink, O: Position> Task for Emit<'_, S, O> {
    type Output = io::Result<()>;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> io::Result<()> {
        let Emit { input, form, indexed, sink } = self;
        let index = &indexed.index;
        let mut writer = Writer { input, form, index, buffer: Buffer::new(sink), frames: Vec::new() };
        writer.document(vector, indexed.needs_rewriting)?;
        writer.buffer.flush()
    }
}

struct Writer<'a, 's, S, O> {
    input: &'a [u8],
    form: Form,
    index: &'a Index<O>,
    buffer: Buffer<'s, S>,
    frames: Vec<Frame<'a, O>>,
}

/// How many members of a long object are fetched ahead.
const AHEAD: usize = 8;

/// Deeper than any member: the document ends where the input does.
const DOCUMENT: usize = usize::MAX / 2;

impl<S: Sink, O: Position> Writer<'_, '_, S, O> {
    #[inline(always)]
    fn document<V: Vector>(&mut self, vector: V, rewrites: bool) -> io::Result<()> {
        let mut place = Place { at: 0, depth: DOCUMENT, record: 0 };
        loop {
            let limit = self.index.start(place.record).unwrap_or(self.input.len());
            let end = match rewrites {
                true => self.rewrite(&mut place, limit)?,
                false => self.stretch(vector, &mut place, limit)?,
            };
            match end {
                End::Document => return Ok(()),
                End::Member => {}
                End::Record => {
                    self.buffer.push(self.input[place.at])?;
                    let Place { depth, record, .. } = place;
                    let order = self.index.order(record);
                    let has_records = self.index.start(record + 1).is_some_and(|next| next < order.end());
                    self.frames.push(Frame { order, record, member: 0, has_records, depth });
                }
            }
            place = self.next_member(vector)?;
        }
    }

    /// Where the next member of the innermost recorded container begins, or what follows the container after its last.
    #[inline(always)]
    fn next_member<V: Vector>(&mut self, vector: V) -> io::Result<Place> {
        let frame = self.frames.last_mut().expect("members only end inside of recorded containers");
        let next_record = frame.record + 1;
        if let Some(at) = frame.order.get(frame.member) {
            if let Some(later) = frame.order.far(frame.member + AHEAD) {
                vector.prefetch(self.input, later);
            }
            if frame.member > 0 {
                self.buffer.push(b',')?;
            }
            frame.member += 1;
            let record = if frame.has_records { self.index.next(next_record, at) } else { next_record };
            return Ok(Place { at, depth: 0, record });
        }
        let Frame { order, has_records, depth, .. } = *frame;
        let end = order.end();
        self.frames.pop();
        self.buffer.push(self.input[end])?;
        let record = if has_records { self.index.next(next_record, end) } else { next_record };
        Ok(Place { at: end + 1, depth, record })
    }

    /// Copies all but whitespace, up to the end of a member or the limit.
    #[inline(always)]
    fn stretch<V: Vector>(&mut self, vector: V, place: &mut Place, limit: usize) -> io::Result<End> {
        let (mut carried, mut string) = (0, 0);
        while place.at < limit {
            let mut padded = [0; 64];
            let block = match self.input[place.at..].first_chunk() {
                Some(block) => block,
                None => {
                    let rest = &self.input[place.at..];
                    padded[..rest.len()].copy_from_slice(rest);
                    &padded
                }
            };
            let outline = vector.outline(block);
            let mut quote = outline.quote;
            if outline.backslash | carried != 0 {
                quote &= !find_escaped(outline.backslash, &mut carried);
            }
            let in_string = vector.prefix_xor(quote) ^ string;
            string = 0u64.wrapping_sub(in_string >> 63);
            let outside = !(in_string | quote);

            let here = first(limit - place.at);
            let end = member_end(&outline, outside & here, &mut place.depth);
            let counted = end.map_or(64.min(limit - place.at), |end| end as usize);
            let keep = first(counted) & !(outline.space & outside);
            if keep != 0 {
                vector.compress(block, keep, self.buffer.block()?);
                self.buffer.length += keep.count_ones() as usize;
            }
            place.at += counted;
            if end.is_some() {
                return Ok(End::Member);
            }
        }
        Ok(self.limit_reached(limit))
    }

    fn limit_reached(&self, limit: usize) -> End {
        if limit == self.input.len() { End::Document } else { End::Record }
    }

    /// As [`Writer::stretch`], but one string and number at a time, each written as it must be.
    #[inline(never)]
    fn rewrite(&mut self, place: &mut Place, limit: usize) -> io::Result<End> {
        while place.at < limit {
            let byte = self.input[place.at];
            match byte {
                b' ' | b'\t' | b'\n' | b'\r' => place.at += 1,
                b'"' => place.at += self.string(place.at)?,
                b'-' | b'0'..=b'9' => place.at += self.number(place.at)?,
                b',' | b'}' | b']' if place.depth == 0 => return Ok(End::Member),
                _ => {
                    place.at += 1;
                    self.buffer.push(byte)?;
                    match byte {
                        b'{' | b'[' => place.depth += 1,
                        b'}' | b']' => place.depth -= 1,
                        _ => {}
                    }
                }
            }
        }
        Ok(self.limit_reached(limit))
    }

    /// Writes the string at this place, in pieces: it may be most of the input. The length it has in the input.
    fn string(&mut self, at: usize) -> io::Result<usize> {
        let rest = &self.input[at + 1..];
        let (length, escaped) = key_end(rest, 0);
        self.buffer.push(b'"')?;
        if escaped {
            let raw = std::str::from_utf8(&rest[..length]).expect("all strings were checked");
            let (mut utf8, mut piece) = ([0; 4], Vec::new());
            for c in Text::new(raw, true).chars() {
                push_escaped(&mut piece, c.encode_utf8(&mut utf8));
                if piece.len() >= PIECE {
                    self.buffer.extend(&piece)?;
                    piece.clear();
                }
            }
            self.buffer.extend(&piece)?;
        } else {
            // Without escapes there is nothing to change: what must be escaped cannot stand unescaped.
            self.buffer.extend(&rest[..length])?;
        }
        self.buffer.push(b'"')?;
        Ok(length + 2)
    }

    /// Writes the number at this place; the length it has in the input.
    fn number(&mut self, at: usize) -> io::Result<usize> {
        let rest = &self.input[at..];
        let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(is_part).count();
        if self.form == Form::Lexical {
            self.buffer.extend(&rest[..length])?;
            return Ok(length);
        }
        let text = std::str::from_utf8(&rest[..length]).expect("numbers are ASCII");
        let mut printed = Vec::new();
        push_number(&mut printed, Number::new(text), self.form).expect("all numbers were checked");
        self.buffer.extend(&printed)?;
        Ok(length)
    }
}

/// How much of a string is written at once.
const PIECE: usize = 1 << 12;

/// The lowest bits, as many as this.
#[inline(always)]
fn first(bits: usize) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Where the member ends, if it does in this block; else `depth` is how deep it is after the block.
#[inline(always)]
fn member_end(outline: &Outline, outside: u64, depth: &mut usize) -> Option<u32> {
    let open = outline.open & outside;
    let close = outline.close & outside;
    let stop = close | outline.comma & outside;
    if *depth == 0 && open == 0 {
        return (stop != 0).then(|| stop.trailing_zeros());
    }
    if *depth > close.count_ones() as usize {
        *depth = *depth + open.count_ones() as usize - close.count_ones() as usize;
        return None;
    }
    let mut left = open | stop;
    while left != 0 {
        let bit = left.trailing_zeros();
        left &= left - 1;
        if open >> bit & 1 != 0 {
            *depth += 1;
        } else if *depth == 0 {
            return Some(bit);
        } else if close >> bit & 1 != 0 {
            *depth -= 1;
        }
    }
    None
}
