use std::fs;
use std::path::{Component, Path};

use super::PatchedFile;

/// A patch whose hunk headers say where the hunks fit in one tree.
///
/// libgit2 applies a hunk only at the very line it names, and deletes a file without looking at it. Between two releases
/// lines move; `git apply` follows them, and so does this: a hunk that does not fit where it says, and fits at exactly
/// one other place, gets the number of that place. Fitting at two places is fitting nowhere.
pub(super) struct Placed {
    pub(super) bytes: Vec<u8>,
    /// A file that the patch deletes and that has other content than it says.
    pub(super) wrong_deletion: Option<String>,
    files: Vec<(String, Vec<i64>)>,
}

impl Placed {
    pub(super) fn on(root: &Path, patch: &[u8]) -> Self {
        let mut placed =
            Placed { bytes: Vec::with_capacity(patch.len()), wrong_deletion: None, files: Vec::new() };
        let lines: Vec<&[u8]> = patch.split_inclusive(|&byte| byte == b'\n').collect();
        let mut file = OldFile::default();
        let mut at = 0;
        while at < lines.len() {
            let taken = match Hunk::parse(&lines[at..]) {
                Some(hunk) => placed.hunk(&mut file, &hunk, &lines[at..]),
                None => {
                    placed.bytes.extend(file.header(root, &lines[at..], &mut placed.files));
                    placed.bytes.extend(lines[at]);
                    1
                }
            };
            at += taken;
        }
        placed
    }

    /// Copies a hunk with the numbers of the place where it fits; returns how many lines it has.
    fn hunk(&mut self, file: &mut OldFile, hunk: &Hunk<'_>, lines: &[&[u8]]) -> usize {
        let old_start = file.place(hunk);
        let offset = i64::try_from(old_start).unwrap_or(0) - i64::try_from(hunk.old_start).unwrap_or(0);
        if file.deleted && (file.lines.as_slice() != hunk.before.as_slice()) {
            self.wrong_deletion.get_or_insert_with(|| file.path.clone());
        }
        if let Some((_, offsets)) = self.files.last_mut() {
            offsets.push(offset);
        }
        self.bytes.extend(hunk.header(old_start, file.new_start(hunk, old_start)));
        self.bytes.extend(lines[1..hunk.lines].concat());
        file.shift += hunk.grows();
        hunk.lines
    }

    /// The file with the offsets of its hunks; matched by its path, which is the one after a renaming.
    pub(super) fn offsets_of(&self, mut file: PatchedFile) -> PatchedFile {
        let found = self.files.iter().find(|(path, _)| *path == file.path);
        file.offset_lines = found.map(|(_, offsets)| offsets.clone()).unwrap_or_default();
        file
    }
}

/// The file that the hunks at hand are for, as it is in the tree.
#[derive(Default)]
struct OldFile {
    path: String,
    lines: Vec<Vec<u8>>,
    /// Where the next hunk may begin at the earliest.
    from: usize,
    /// How many lines the hunks before have added.
    shift: i64,
    deleted: bool,
    has_git_head: bool,
}

impl OldFile {
    /// Looks at a line between hunks; `---` names the old file and `+++` the new one. Returns what libgit2 needs before
    /// the line: the head that git writes and `diff -u` does not.
    fn header(&mut self, root: &Path, lines: &[&[u8]], files: &mut Vec<(String, Vec<i64>)>) -> Vec<u8> {
        let line = lines[0];
        if line.starts_with(b"diff --git ") {
            *self = OldFile { has_git_head: true, ..OldFile::default() };
        } else if let Some(name) = line.strip_prefix(b"--- ") {
            let new = lines.get(1).and_then(|line| line.strip_prefix(b"+++ "));
            let head = new.filter(|_| !self.has_git_head).map(|new| git_head(name, new));
            let path = path_of(name);
            let content = path.as_ref().and_then(|path| fs::read(root.join(path)).ok()).unwrap_or_default();
            *self = OldFile { path: path.unwrap_or_default(), lines: split(&content), ..OldFile::default() };
            return head.unwrap_or_default();
        } else if let Some(name) = line.strip_prefix(b"+++ ") {
            let path = path_of(name);
            self.deleted = path.is_none() && name.starts_with(b"/dev/null");
            files.push((path.unwrap_or_else(|| self.path.clone()), Vec::new()));
        }
        Vec::new()
    }

    /// The line, from 1, at which a hunk fits; where it says, if there is no better place.
    fn place(&mut self, hunk: &Hunk<'_>) -> usize {
        let length = hunk.before.len();
        let fits = |at: usize| self.lines.get(at..at + length).is_some_and(|lines| lines == hunk.before);
        let stated = hunk.old_start.saturating_sub(1);
        let mut at = stated;
        if length > 0 && !(stated >= self.from && fits(stated)) {
            let mut elsewhere = (self.from..self.lines.len()).filter(|&at| fits(at));
            if let (Some(only), None) = (elsewhere.next(), elsewhere.next()) {
                at = only;
            }
        }
        self.from = at + length;
        if length == 0 { hunk.old_start } else { at + 1 }
    }

    /// The line of the resulting file at which the hunk begins. A side without lines is named by the line before.
    fn new_start(&self, hunk: &Hunk<'_>, old_start: usize) -> usize {
        let side = |lines: usize| i64::from(lines == 0);
        let base = i64::try_from(old_start).unwrap_or(0) + self.shift + side(hunk.before.len())
            - side(hunk.new_lines);
        usize::try_from(base).unwrap_or(hunk.new_start)
    }
}

/// A hunk of a unified diff.
struct Hunk<'a> {
    old_start: usize,
    old_lines: usize,
    new_start: usize,
    new_lines: usize,
    /// What follows the numbers.
    context: &'a [u8],
    /// The lines it expects.
    before: Vec<Vec<u8>>,
    /// How many lines of the patch it takes.
    lines: usize,
}

impl<'a> Hunk<'a> {
    /// The hunk that begins with the first of these lines; nothing if they are no whole hunk.
    fn parse(lines: &[&'a [u8]]) -> Option<Self> {
        let header = lines.first()?.strip_prefix(b"@@ -")?;
        let end = header.windows(3).position(|window| window == b" @@")?;
        let (old, new) = std::str::from_utf8(&header[..end]).ok()?.split_once(" +")?;
        let ((old_start, old_lines), (new_start, new_lines)) = (range(old)?, range(new)?);
        let context = &header[end + 3..];
        let mut hunk =
            Hunk { old_start, old_lines, new_start, new_lines, context, before: Vec::new(), lines: 1 };
        hunk.body(&lines[1..])?;
        Some(hunk)
    }

    fn body(&mut self, lines: &[&[u8]]) -> Option<()> {
        let (mut old, mut new) = (self.old_lines, self.new_lines);
        let mut last_is_old = false;
        for line in lines {
            let (mark, text) = match line.split_first() {
                Some((b'\n', _)) => (b' ', *line),
                Some((mark, text)) => (*mark, text),
                None => return None,
            };
            match mark {
                // The line before has no line feed.
                b'\\' => self.cut_line_feed(last_is_old),
                _ if old == 0 && new == 0 => break,
                b' ' => (old, new) = (old.checked_sub(1)?, new.checked_sub(1)?),
                b'-' => old = old.checked_sub(1)?,
                b'+' => new = new.checked_sub(1)?,
                _ => return None,
            }
            last_is_old = matches!(mark, b' ' | b'-');
            if last_is_old {
                self.before.push(text.to_vec());
            }
            self.lines += 1;
        }
        (old == 0 && new == 0).then_some(())
    }

    fn cut_line_feed(&mut self, last_is_old: bool) {
        let last = self.before.last_mut().filter(|line| last_is_old && line.last() == Some(&b'\n'));
        if let Some(line) = last {
            line.pop();
        }
    }

    fn grows(&self) -> i64 {
        i64::try_from(self.new_lines).unwrap_or(0) - i64::try_from(self.old_lines).unwrap_or(0)
    }

    fn header(&self, old_start: usize, new_start: usize) -> Vec<u8> {
        let numbers = format!("@@ -{old_start},{} +{new_start},{} @@", self.old_lines, self.new_lines);
        [numbers.as_bytes(), self.context].concat()
    }
}

/// `12,3`, or `12` for one line.
fn range(text: &str) -> Option<(usize, usize)> {
    match text.split_once(',') {
        Some((start, lines)) => Some((start.parse().ok()?, lines.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    }
}

/// The lines that git writes before `---` and `+++`; nothing where a name is not plain, which libgit2 then refuses.
fn git_head(old: &[u8], new: &[u8]) -> Vec<u8> {
    let is_nothing = |name: &[u8]| name.starts_with(b"/dev/null");
    let Some(path) = path_of(new).or_else(|| path_of(old)) else { return Vec::new() };
    let mode = match (is_nothing(old), is_nothing(new)) {
        (true, _) => "new file mode 100644\n",
        (_, true) => "deleted file mode 100644\n",
        _ => "",
    };
    format!("diff --git a/{path} b/{path}\n{mode}").into_bytes()
}

fn split(content: &[u8]) -> Vec<Vec<u8>> {
    content.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect()
}

/// The path of `a/src/x`, without its first part. A quoted name, or one that leaves the tree, is libgit2's to judge.
fn path_of(name: &[u8]) -> Option<String> {
    let name = name.split(|&byte| matches!(byte, b'\n' | b'\t' | b'\r')).next()?;
    let name = std::str::from_utf8(name).ok()?;
    let path = name.split_once('/').map(|(_, path)| path).filter(|_| !name.starts_with(['"', '/']))?;
    let inside =
        Path::new(path).components().all(|part| matches!(part, Component::Normal(part) if part != ".git"));
    (inside && !path.is_empty()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of these lines, and the header that a hunk gets on it.
    fn check(file: &str, hunk: &str, header: &str, offset: i64) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), file).unwrap();
        let patch = format!("diff --git a/f b/f\n--- a/f\n+++ b/f\n{hunk}");
        let placed = Placed::on(dir.path(), patch.as_bytes());
        let text = String::from_utf8(placed.bytes).unwrap();
        let found = text.lines().filter(|line| line.starts_with("@@")).collect::<Vec<_>>().join(" | ");
        assert_eq!(found, header, "{hunk:?} on {file:?}");
        assert_eq!(placed.files, [("f".to_owned(), placed.files[0].1.clone())]);
        assert_eq!(placed.files[0].1.last().copied(), Some(offset));
        let body = |text: &str| {
            text.lines().filter(|line| !line.starts_with("@@")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(body(&text), body(&patch), "only headers change");
    }

    #[test]
    fn a_hunk_goes_where_it_fits() {
        check("a\nb\nc\n", "@@ -2 +2 @@ fn\n-b\n+B\n", "@@ -2,1 +2,1 @@ fn", 0);
        check("x\ny\na\nb\nc\n", "@@ -2 +2 @@\n-b\n+B\n", "@@ -4,1 +4,1 @@", 2);
        check("b\nc\n", "@@ -9,2 +9,3 @@\n b\n+new\n c\n", "@@ -1,2 +1,3 @@", -8);
        check("b\nx\nb\n", "@@ -2 +2 @@\n-b\n+B\n", "@@ -2,1 +2,1 @@", 0);
        check("x\n", "@@ -2 +2 @@\n-b\n+B\n", "@@ -2,1 +2,1 @@", 0);
        check("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n", "@@ -1,2 +1,2 @@", 0);
        check("a\n\nb\n", "@@ -5,3 +5,2 @@\n a\n\n-b\n", "@@ -1,3 +1,2 @@", -4);
    }

    #[test]
    fn hunks_after_another_know_how_far_it_moved_them() {
        let two = "@@ -1 +1,3 @@\n a\n+1\n+2\n@@ -3 +5 @@\n-c\n+C\n";
        check("a\nb\nc\n", two, "@@ -1,1 +1,3 @@ | @@ -3,1 +5,1 @@", 0);
        check("a\nb\nb2\nc\n", two, "@@ -1,1 +1,3 @@ | @@ -4,1 +6,1 @@", 1);
        // The same lines before the first hunk are not looked at again for the second.
        check("c\na\nc\n", two, "@@ -2,1 +2,3 @@ | @@ -3,1 +5,1 @@", 0);
    }

    #[test]
    fn sides_without_lines_are_named_by_the_line_before() {
        check("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "@@ -1,0 +2,1 @@", 0);
        check("a\nb\n", "@@ -2 +1,0 @@\n-b\n", "@@ -2,1 +1,0 @@", 0);
    }

    #[test]
    fn a_deleted_file_must_be_what_the_patch_says() {
        let dir = tempfile::tempdir().unwrap();
        let patch = b"--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        fs::write(dir.path().join("f"), "x\n").unwrap();
        assert_eq!(Placed::on(dir.path(), patch).wrong_deletion, None);
        fs::write(dir.path().join("f"), "x\nmore\n").unwrap();
        assert_eq!(Placed::on(dir.path(), patch).wrong_deletion, Some("f".to_owned()));
    }

    #[test]
    fn a_plain_diff_gets_the_head_that_git_writes() {
        let head = |patch: &str| {
            let placed = Placed::on(Path::new("/none"), patch.as_bytes());
            String::from_utf8(placed.bytes).unwrap().split("--- ").next().unwrap().to_owned()
        };
        assert_eq!(head("--- a/f\t2024\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"), "diff --git a/f b/f\n");
        let new = "diff --git a/f b/f\nnew file mode 100644\n";
        assert_eq!(head("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n"), new);
        let deleted = "diff --git a/f b/f\ndeleted file mode 100644\n";
        assert_eq!(head("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"), deleted);
        let own = "diff --git a/f b/f\nindex 0..1\n";
        assert_eq!(head(&format!("{own}--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n")), own);
    }

    #[test]
    fn what_is_no_hunk_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", "text\n", "@@ nonsense @@\n", "--- a/f\n@@ -1,9 +1 @@\n-cut", "@@ -x +y @@\n"] {
            assert_eq!(Placed::on(dir.path(), text.as_bytes()).bytes, text.as_bytes());
        }
    }

    #[test]
    fn paths_that_leave_the_tree_are_not_read() {
        for (name, path) in [
            ("a/src/x\n", Some("src/x")),
            ("a/x\t2024-01-01\n", Some("x")),
            ("/dev/null\n", None),
            ("a/../x\n", None),
            ("a/.git/config\n", None),
            ("\"a/quoted\"\n", None),
            ("noprefix\n", None),
        ] {
            assert_eq!(path_of(name.as_bytes()).as_deref(), path, "{name:?}");
        }
    }
}
