//! A topology from a file that hwloc exported, format 2. The reader is ours so that plans can be made for another
//! machine without hwloc being installed; with the feature `hwloc` the tests compare it with hwloc's own.

use std::borrow::Cow;

use crate::set::{CpuSet, NodeSet, ParseSetError};
use crate::topology::{Cache, CpuKind, Node, Package, Parts, Source, Topology, TopologyError, cgroup};

/// Reads the text of the file.
pub(super) fn read(text: &str) -> Result<Topology, TopologyError> {
    let mut found = Found::default();
    let mut scanner = Scanner { text, at: 0, open: Vec::new() };
    while let Some(element) = scanner.next_element()? {
        found.take(&element)?;
    }
    found.finish()
}

/// One start tag.
struct Element<'a> {
    name: &'a str,
    attributes: Vec<(&'a str, Cow<'a, str>)>,
    /// How many elements are around it.
    depth: usize,
    parent: Option<&'a str>,
}

impl Element<'_> {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.attribute(name)?.parse().ok()
    }

    fn cpus(&self, name: &str) -> Result<CpuSet, TopologyError> {
        mask(self.attribute(name), &self.label(name))
    }

    fn label(&self, attribute: &str) -> String {
        format!("{attribute} of a {}", self.attribute("type").unwrap_or(self.name))
    }
}

fn mask(text: Option<&str>, what: &str) -> Result<CpuSet, TopologyError> {
    let incomplete = || TopologyError::Incomplete { what: what.to_owned() };
    CpuSet::from_mask(text.ok_or_else(incomplete)?).map_err(|_: ParseSetError| incomplete())
}

/// What has been collected from the elements so far.
#[derive(Default)]
struct Found {
    version: Option<String>,
    parts: Parts,
    pus: CpuSet,
    complete: CpuSet,
    allowed: CpuSet,
    allowed_nodes: NodeSet,
    isolated: CpuSet,
    nohz_full: CpuSet,
    quota_millicpus: Option<u64>,
}

impl Found {
    fn take(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        match element.name {
            "topology" => self.take_version(element),
            "object" => self.take_object(element),
            "cpukind" => self.take_kind(element),
            "info" if element.parent == Some("cpukind") => {
                self.take_kind_info(element);
                Ok(())
            }
            // Infos of the machine itself stand directly below the outermost object.
            "info" if element.depth == 2 => self.take_machine_info(element),
            _ => Ok(()),
        }
    }

    fn take_version(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        // The first format does not state its version.
        let found = element.attribute("version").unwrap_or("1").to_owned();
        if found.split('.').next() != Some("2") {
            return Err(TopologyError::Version { found });
        }
        self.version = Some(found);
        Ok(())
    }

    fn take_object(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        match element.attribute("type").unwrap_or_default() {
            "Machine" => return self.take_machine(element),
            "Package" => {
                let index = element.number("os_index").unwrap_or(0);
                self.parts.packages.push(Package { index, cpus: element.cpus("cpuset")? });
            }
            "NUMANode" => self.take_node(element)?,
            "Core" => self.parts.cores.push(element.cpus("cpuset")?),
            "PU" => self.pus = self.pus.union(&element.cpus("cpuset")?),
            "L1Cache" | "L2Cache" | "L3Cache" | "L4Cache" | "L5Cache" => self.take_cache(element)?,
            _ => {}
        }
        Ok(())
    }

    fn take_machine(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        self.complete = element.cpus("complete_cpuset")?;
        self.allowed = element.cpus("allowed_cpuset").or_else(|_| element.cpus("cpuset"))?;
        let nodes = element.attribute("allowed_nodeset").unwrap_or_default();
        let incomplete = |_| TopologyError::Incomplete { what: element.label("allowed_nodeset") };
        self.allowed_nodes = NodeSet::from_mask(nodes).map_err(incomplete)?;
        Ok(())
    }

    fn take_node(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        let incomplete = || TopologyError::Incomplete { what: element.label("os_index") };
        self.parts.nodes.push(Node {
            index: element.number("os_index").ok_or_else(incomplete)?,
            cpus: element.cpus("cpuset")?,
            memory_bytes: element.number("local_memory"),
        });
        Ok(())
    }

    fn take_cache(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        let incomplete = || TopologyError::Incomplete { what: element.label("depth") };
        self.parts.caches.push(Cache {
            level: element.number("depth").ok_or_else(incomplete)?,
            cpus: element.cpus("cpuset")?,
            size_bytes: element.number("cache_size").filter(|size| *size > 0),
        });
        Ok(())
    }

    fn take_kind(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        // Without a forced efficiency the order of the kinds is hwloc's, slowest first.
        let position = u32::try_from(self.parts.kinds.len()).unwrap_or(u32::MAX);
        let rank = element.number("forced_efficiency").unwrap_or(position);
        self.parts.kinds.push(CpuKind { cpus: element.cpus("cpuset")?, rank, name: None });
        Ok(())
    }

    fn take_kind_info(&mut self, element: &Element<'_>) {
        let Some(kind) = self.parts.kinds.last_mut() else { return };
        if element.attribute("name") == Some("CoreType") {
            kind.name = element.attribute("value").map(str::to_owned);
        }
    }

    fn take_machine_info(&mut self, element: &Element<'_>) -> Result<(), TopologyError> {
        let value = element.attribute("value").unwrap_or_default();
        let name = element.attribute("name").unwrap_or_default();
        let list = || value.parse().map_err(|_| TopologyError::Incomplete { what: format!("info {name}") });
        match name {
            "LinuxCpuMax" => self.quota_millicpus = cgroup::parse_cpu_max(value),
            "LinuxIsolatedCpus" => self.isolated = list()?,
            "LinuxNohzFullCpus" => self.nohz_full = list()?,
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Topology, TopologyError> {
        let absent = |what: &str| TopologyError::Incomplete { what: what.to_owned() };
        self.version.ok_or_else(|| absent("the element topology"))?;
        if self.pus.is_empty() {
            return Err(absent("every object of type PU"));
        }
        if self.parts.cores.is_empty() {
            self.parts.cores = self.pus.iter().map(|cpu| CpuSet::from_iter([cpu])).collect();
        }
        let parts = self.parts.normalise(&self.pus);
        parts.check_cores(&self.pus)?;
        Ok(Topology {
            source: Source::HwlocXml,
            notes: Vec::new(),
            cores: parts.related_cores(),
            packages: parts.packages,
            nodes: parts.nodes,
            caches: parts.caches,
            kinds: parts.kinds,
            offline: self.complete.difference(&self.pus),
            allowed: self.allowed.intersection(&self.pus),
            allowed_nodes: self.allowed_nodes,
            isolated: self.isolated,
            nohz_full: self.nohz_full,
            quota_millicpus: self.quota_millicpus,
            online: self.pus,
        })
    }
}

/// Goes through the tags of the text. hwloc writes no character data, so there is none to keep.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    open: Vec<&'a str>,
}

impl<'a> Scanner<'a> {
    fn error<T>(&self, what: &'static str) -> Result<T, TopologyError> {
        Err(TopologyError::Xml { what, offset: self.at })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Moves behind the next occurrence of `end`, returning what was before it.
    fn until(&mut self, end: &str, what: &'static str) -> Result<&'a str, TopologyError> {
        let rest = self.rest();
        let Some(position) = rest.find(end) else { return self.error(what) };
        self.at += position + end.len();
        Ok(&rest[..position])
    }

    fn next_element(&mut self) -> Result<Option<Element<'a>>, TopologyError> {
        loop {
            let Some(position) = self.rest().find('<') else { return self.finish() };
            self.at += position + 1;
            let rest = self.rest();
            if rest.starts_with('?') {
                self.until("?>", "an unfinished declaration")?;
            } else if rest.starts_with("!--") {
                self.until("-->", "an unfinished comment")?;
            } else if rest.starts_with('!') {
                self.until(">", "an unfinished declaration")?;
            } else if rest.starts_with('/') {
                self.close()?;
            } else {
                return self.start_tag().map(Some);
            }
        }
    }

    fn finish(&self) -> Result<Option<Element<'a>>, TopologyError> {
        if self.open.is_empty() {
            Ok(None)
        } else {
            self.error("an element that is not closed before the end")
        }
    }

    fn close(&mut self) -> Result<(), TopologyError> {
        let name = self.until(">", "an unfinished end tag")?[1..].trim();
        if self.open.pop() == Some(name) { Ok(()) } else { self.error("an end tag without its start tag") }
    }

    fn start_tag(&mut self) -> Result<Element<'a>, TopologyError> {
        let name = self.name()?;
        let mut element = Element {
            name,
            attributes: Vec::new(),
            depth: self.open.len(),
            parent: self.open.last().copied(),
        };
        loop {
            self.skip_space();
            let rest = self.rest();
            if rest.starts_with("/>") {
                self.at += 2;
                return Ok(element);
            }
            if rest.starts_with('>') {
                self.at += 1;
                self.open.push(name);
                return Ok(element);
            }
            element.attributes.push(self.attribute()?);
        }
    }

    fn name(&mut self) -> Result<&'a str, TopologyError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_-.:".contains(c)));
        match end {
            Some(end) if end > 0 => {
                self.at += end;
                Ok(&rest[..end])
            }
            _ => self.error("a tag or attribute without a name"),
        }
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn attribute(&mut self) -> Result<(&'a str, Cow<'a, str>), TopologyError> {
        let name = self.name()?;
        self.skip_space();
        if !self.rest().starts_with('=') {
            return self.error("an attribute without a value");
        }
        self.at += 1;
        self.skip_space();
        let quote = match self.rest().as_bytes().first() {
            Some(b'"') => "\"",
            Some(b'\'') => "'",
            _ => return self.error("a value without quotes"),
        };
        self.at += 1;
        Ok((name, unescape(self.until(quote, "an unfinished value")?)))
    }
}

/// Values that matter here hold no entities; the others are kept readable.
fn unescape(value: &str) -> Cow<'_, str> {
    if !value.contains('&') {
        return Cow::Borrowed(value);
    }
    let pairs = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Cow::Owned(pairs.iter().fold(value.to_owned(), |text, (from, to)| text.replace(from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(read(text).unwrap_err().to_string(), expected, "{text}");
    }

    #[test]
    fn malformed_files_say_where() {
        check("", "read the topology: the element topology is absent or malformed");
        check(
            "<topology version=\"2.0\">",
            "read the topology: an element that is not closed before the end at byte 24",
        );
        check("<topology version=2>", "read the topology: a value without quotes at byte 18");
        check("<topology version=\"2.0", "read the topology: an unfinished value at byte 19");
        check(
            "<topology version=\"2.0\"></object>",
            "read the topology: an end tag without its start tag at byte 33",
        );
        check(
            "<topology version=\"2.0\"/>",
            "read the topology: every object of type PU is absent or malformed",
        );
        check(
            "<topology version=\"10.1\"/>",
            "read the topology: it is of hwloc format \"10.1\", and only format 2 is understood",
        );
        check(
            "<topology version=\"2.0\"><object type=\"PU\" cpuset=\"0xz\"/></topology>",
            "read the topology: cpuset of a PU is absent or malformed",
        );
    }

    #[test]
    fn cores_that_contradict_each_other_are_refused() {
        let machine = |cores: &str| {
            format!(
                "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x7\" complete_cpuset=\"0x7\" \
                 allowed_nodeset=\"0x1\">{cores}<object type=\"PU\" cpuset=\"0x7\"/></object></topology>"
            )
        };
        let core = |mask: &str| format!("<object type=\"Core\" cpuset=\"{mask}\"/>");
        check(&machine(&(core("0x3") + &core("0x6"))), "read the topology: CPUs 1 are in two cores");
        check(&machine(&core("0x3")), "read the topology: CPUs 2 are in no core");
        assert_eq!(read(&machine(&(core("0x3") + &core("0x4")))).unwrap().cores.len(), 2);
    }

    #[test]
    fn offline_cpus_and_memory_only_nodes() {
        let text = r#"<topology version="2.0">
            <object type="Machine" cpuset="0x3" complete_cpuset="0xf" allowed_cpuset="0x1" allowed_nodeset="0x3">
              <object type="NUMANode" os_index="0" cpuset="0x3" local_memory="10"/>
              <object type="NUMANode" os_index="1" cpuset="0x3" local_memory="20"/>
              <object type="PU" os_index="0" cpuset="0x1"/><!-- > -->
              <object type="PU" os_index="1" cpuset='0x2'/>
            </object></topology>"#;
        let topology = read(text).unwrap();
        assert_eq!(topology.offline.to_string(), "2-3");
        assert_eq!(topology.allowed.to_string(), "0");
        assert_eq!(topology.nodes_of(&topology.online).to_string(), "0");
        assert_eq!(topology.nodes.len(), 2);
        assert_eq!(topology.cores.len(), 2);
    }
}
