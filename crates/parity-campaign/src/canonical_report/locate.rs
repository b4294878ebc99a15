//! Finds values in a report by their place, as they are written.

use canonical_json::{Event, Pointer, ReadError, Reader};

use super::decode::describe;

/// The value at a pointer, as it is written: scalars exactly, containers by kind and size. `None` when there is none.
pub(crate) fn value_text(bytes: &[u8], pointer: &str) -> Option<String> {
    text_of(raw_value(bytes, pointer)?)
}

/// The bytes of the value at a pointer.
pub(crate) fn raw_value<'a>(bytes: &'a [u8], pointer: &str) -> Option<&'a [u8]> {
    let pointer: Pointer = pointer.parse().ok()?;
    let mut reader = Reader::new(bytes);
    for token in pointer.tokens() {
        match reader.next_event().ok()? {
            Event::ObjectStart => enter_member(&mut reader, &token)?,
            Event::ArrayStart => enter_element(&mut reader, token.parse().ok()?)?,
            _ => return None,
        }
    }
    reader.skip_value().ok()?
}

/// Moves a reader to the value of a member of the object it is in.
fn enter_member(reader: &mut Reader<'_>, wanted: &str) -> Option<()> {
    loop {
        match reader.next_event().ok()? {
            Event::Key(key) if key == wanted => return Some(()),
            Event::Key(_) => reader.skip_value().ok()?,
            _ => return None,
        };
    }
}

/// Moves a reader to an element of the array it is in.
fn enter_element(reader: &mut Reader<'_>, index: usize) -> Option<()> {
    for _ in 0..index {
        reader.skip_value().ok()??;
    }
    Some(())
}

fn text_of(raw: &[u8]) -> Option<String> {
    let mut reader = Reader::new(raw);
    let event = reader.next_event().ok()?;
    let mut size = 0_u64;
    match event {
        Event::ArrayStart => {
            while reader.skip_value().ok()?.is_some() {
                size += 1;
            }
        }
        Event::ObjectStart => {
            while let Event::Key(_) = reader.next_event().ok()? {
                reader.skip_value().ok()?;
                size += 1;
            }
        }
        scalar => return Some(describe(&scalar)),
    }
    Some(format!("{} of {size}", describe(&event)))
}

/// The elements of the array at a pointer of keys, each as it is written; empty when there is no such array.
pub(crate) fn elements<'a>(bytes: &'a [u8], keys: &[&str]) -> Result<Vec<&'a [u8]>, ReadError> {
    let mut reader = Reader::new(bytes);
    for key in keys {
        if reader.next_event()? != Event::ObjectStart || !find_member(&mut reader, key)? {
            return Ok(Vec::new());
        }
    }
    if reader.next_event()? != Event::ArrayStart {
        return Ok(Vec::new());
    }
    let mut elements = Vec::new();
    while let Some(raw) = reader.skip_value()? {
        elements.push(raw);
    }
    Ok(elements)
}

fn find_member(reader: &mut Reader<'_>, wanted: &str) -> Result<bool, ReadError> {
    while let Event::Key(key) = reader.next_event()? {
        if key == wanted {
            return Ok(true);
        }
        reader.skip_value()?;
    }
    Ok(false)
}
