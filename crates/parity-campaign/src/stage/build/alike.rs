//! Whether both revisions are built in one way: what a profile, a feature or a compiler flag does to the time is no
//! property of the change under test (P4).

use std::fs;
use std::io;
use std::path::Path;

use canonical_json::Sha256;
use revision_pin::{BuildRecord as PinnedBuild, Checkout};

use crate::definition::{Definition, ReviewKind};
use crate::error::{At, CampaignError, Cause};
use crate::record::{Both, BuildDifference, Side};
use crate::stage::Stage;
use crate::stage::pin::Checkouts;

/// Files of a revision that say how it is compiled.
const TOOLCHAIN_FILES: [&str; 4] =
    [".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml"];

/// What is known before anything is built. Refuses a debug build, and every difference that no review explains.
pub(super) fn check_sources(
    definition: &Definition,
    pinned: &Checkouts,
) -> Result<Vec<BuildDifference>, CampaignError> {
    let profiles = Both::try_make(|side| profile(definition, pinned.checkouts.get(side), side))?;
    let mut found = Vec::new();
    found.extend(difference("profile", &profiles.baseline, &profiles.candidate));
    let features =
        [&definition.baseline, &definition.candidate].map(|revision| definition.features(revision).to_vec());
    found.extend(difference("features", &listed(features[0].clone()), &listed(features[1].clone())));
    let files = Both::try_make(|side| toolchain_files(pinned.checkouts.get(side)))
        .at(Stage::Build, Cause::HostUnfit)?;
    found.extend(difference("toolchain", &files.baseline, &files.candidate));
    explained(definition, found)
}

/// What only the builds themselves could say; `known` was explained before.
pub(super) fn check_builds(
    definition: &Definition,
    known: Vec<BuildDifference>,
    [baseline, candidate]: [&PinnedBuild; 2],
) -> Result<Vec<BuildDifference>, CampaignError> {
    let enabled = |build: &PinnedBuild| listed(build.features.clone());
    let tools = |build: &PinnedBuild| {
        let flags = build.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let files = build.config_files.iter().map(|file| format!("{} {}", file.name, file.sha256));
        let tools = build.toolchain.rustc.iter().chain([&build.toolchain.cargo]).chain(&build.toolchain.cc);
        listed(tools.cloned().chain(flags).chain(files).collect())
    };
    let found = [
        difference("features", &enabled(baseline), &enabled(candidate)),
        difference("toolchain", &tools(baseline), &tools(candidate)),
    ];
    let is_new =
        |difference: &BuildDifference| !known.iter().any(|other| other.subject == difference.subject);
    let found: Vec<BuildDifference> = found.into_iter().flatten().filter(is_new).collect();
    Ok([known, explained(definition, found)?].concat())
}

fn explained(
    definition: &Definition,
    found: Vec<BuildDifference>,
) -> Result<Vec<BuildDifference>, CampaignError> {
    let is_reviewed =
        |subject: &str| definition.reviews_of(ReviewKind::Build).any(|review| review.subject == subject);
    match found.iter().find(|difference| !is_reviewed(&difference.subject)) {
        None => Ok(found),
        Some(BuildDifference { subject, baseline, candidate }) => {
            let message = format!(
                "the two revisions are not built in one way: {subject} is {baseline} on the baseline and {candidate} on the \
                 candidate; explain it in a review of kind build"
            );
            Err(CampaignError::new(Stage::Build, Cause::StopForReview, message))
        }
    }
}

fn difference(subject: &str, baseline: &str, candidate: &str) -> Option<BuildDifference> {
    (baseline != candidate).then(|| BuildDifference {
        subject: subject.to_owned(),
        baseline: baseline.to_owned(),
        candidate: candidate.to_owned(),
    })
}

fn listed(mut names: Vec<String>) -> String {
    names.sort();
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

fn toolchain_files(checkout: &Checkout) -> io::Result<String> {
    let mut files = Vec::new();
    for name in TOOLCHAIN_FILES {
        if let Some(bytes) = if_there(&checkout.root().join(name))? {
            files.push(format!("{name} with digest {}", Sha256::of(&bytes)));
        }
    }
    Ok(listed(files))
}

fn if_there(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The profile as the revision's own workspace sets it, one `key = value` after the other.
fn profile(definition: &Definition, checkout: &Checkout, side: Side) -> Result<String, CampaignError> {
    let bytes = if_there(&checkout.root().join("Cargo.toml")).at(Stage::Build, Cause::HostUnfit)?;
    // What is no manifest is cargo's to refuse; its message names the place.
    let manifest = String::from_utf8_lossy(&bytes.unwrap_or_default()).parse::<toml::Table>();
    let profiles = manifest.ok().and_then(|manifest| manifest.get("profile").cloned());
    let chain = chain(profiles.as_ref(), &definition.build.profile);
    if let Some(setting) = chain.iter().find(|(key, value)| is_debug(key, value)) {
        let message = format!(
            "{}: the profile {} of the revision is a debug build: {} = {}",
            side.name(),
            definition.build.profile,
            setting.0,
            setting.1
        );
        return Err(CampaignError::new(Stage::Build, Cause::BadInput, message));
    }
    Ok(listed(chain.into_iter().map(|(key, value)| format!("{key} = {value}")).collect()))
}

/// The settings of a profile and of those it inherits from; the nearest one holds.
fn chain(profiles: Option<&toml::Value>, name: &str) -> Vec<(String, toml::Value)> {
    let mut settings: Vec<(String, toml::Value)> = Vec::new();
    let mut name = name.to_owned();
    // A chain that comes back to itself is an error of cargo's.
    for _ in 0..16 {
        let Some(table) = profiles.and_then(|all| all.get(&name)).and_then(toml::Value::as_table) else {
            break;
        };
        for (key, value) in table.iter().filter(|(key, _)| *key != "inherits") {
            if !settings.iter().any(|(known, _)| known == key) {
                settings.push((key.clone(), value.clone()));
            }
        }
        let Some(parent) = table.get("inherits").and_then(toml::Value::as_str) else { break };
        name = parent.to_owned();
    }
    settings
}

fn is_debug(key: &str, value: &toml::Value) -> bool {
    match key {
        "opt-level" => matches!(value.as_integer(), Some(0)) || value.as_str() == Some("0"),
        "debug-assertions" => value.as_bool() == Some(true),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_setting_of_a_profile_holds() {
        let manifest = "[profile.release]\nlto = \"thin\"\nopt-level = 3\n[profile.bench-like]\ninherits = \"release\"\n\
                        opt-level = 0\n[profile.round]\ninherits = \"round\"\n";
        let manifest: toml::Table = manifest.parse().expect("a manifest");
        let of = |name: &str| {
            let settings = chain(manifest.get("profile"), name);
            let debug = settings.iter().any(|(key, value)| is_debug(key, value));
            (listed(settings.into_iter().map(|(key, value)| format!("{key} = {value}")).collect()), debug)
        };
        assert_eq!(of("release"), ("lto = \"thin\", opt-level = 3".to_owned(), false));
        assert_eq!(of("bench-like"), ("lto = \"thin\", opt-level = 0".to_owned(), true));
        assert_eq!(of("round"), ("nothing".to_owned(), false));
        assert_eq!(of("absent"), ("nothing".to_owned(), false));
    }

    #[test]
    fn a_difference_needs_a_review_of_exactly_that() {
        let mut definition = crate::definition::tests::good();
        let found = || vec![difference("features", "a", "a, b").expect("they differ")];
        let error = crate::error::with_causes(&explained(&definition, found()).expect_err("unexplained"));
        assert!(error.contains("features is a on the baseline and a, b on the candidate"), "{error}");
        for (subject, holds) in [("profile", false), ("features", true)] {
            definition.reviews = vec![crate::definition::Review {
                kind: ReviewKind::Build,
                subject: subject.into(),
                reason: "x".into(),
                reviewer: "x".into(),
                date: "2026-01-01".into(),
            }];
            assert_eq!(explained(&definition, found()).is_ok(), holds, "{subject}");
        }
        assert!(explained(&definition, Vec::new()).expect("nothing differs").is_empty());
    }
}
