//! pin: two commit ids become isolated checkouts, both of them before anything is built (P1 to P3).

use std::path::{Path, PathBuf};

use revision_pin::{
    Checkout, CheckoutError, CheckoutOptions, Patch as PatchFile, PatchError, PinOptions, Pinned,
    Relationship, pin as pin_revision, relationship,
};

use crate::context::Context;
use crate::definition::{Patch, PatchTarget, Revision};
use crate::error::{At, CampaignError, Cause};
use crate::record::{AppliedPatch, Both, PinRecord, PinnedRevision, Side};
use crate::stage::Stage;

/// Both revisions, checked out and patched.
pub(crate) struct Checkouts {
    pub(crate) checkouts: Both<Checkout>,
    pub(crate) record: PinRecord,
}

impl Checkouts {
    pub(crate) fn baseline(&self) -> &Path {
        self.checkouts.baseline.root()
    }
}

pub(crate) fn pin(context: &Context<'_>) -> Result<Checkouts, CampaignError> {
    let repository = repository(context);
    let pinned = Both::try_make(|side| pin_one(&repository, context, side))?;
    let related = relationship(&repository, pinned.baseline.commit, pinned.candidate.commit)
        .at(Stage::Pin, Cause::BadInput)?;
    let stated = stated(context, &related)?;
    let mut checkouts = Both::try_make(|side| checkout(&repository, context, side, pinned.get(side)))?;
    let patches = context.definition().patches.iter().map(|patch| apply(context, patch, &mut checkouts));
    let record = PinRecord {
        revisions: Both {
            baseline: describe(&pinned.baseline, &context.definition().baseline),
            candidate: describe(&pinned.candidate, &context.definition().candidate),
        },
        ancestry: related.to_string(),
        stated,
        patches: patches.collect::<Result<_, _>>()?,
    };
    context.record(Stage::Pin, "records/pin.json", &record)?;
    Ok(Checkouts { checkouts, record })
}

fn repository(context: &Context<'_>) -> PathBuf {
    let named = || context.resolve(&context.definition().repository.path);
    context.options.repository.clone().unwrap_or_else(named)
}

fn revision<'a>(context: &Context<'a>, side: Side) -> &'a Revision {
    match side {
        Side::Baseline => &context.definition().baseline,
        Side::Candidate => &context.definition().candidate,
    }
}

fn pin_one(repository: &Path, context: &Context<'_>, side: Side) -> Result<Pinned, CampaignError> {
    pin_revision(repository, &revision(context, side).commit, PinOptions::default())
        .at(Stage::Pin, Cause::BadInput)
}

/// Ancestry needs no words; anything else needs the campaign file to say how the two are related (P1).
fn stated(context: &Context<'_>, related: &Relationship) -> Result<Option<String>, CampaignError> {
    let stated = context.definition().relationship.as_ref().map(|relationship| relationship.stated.clone());
    if related.is_ancestry() || stated.is_some() {
        return Ok(stated);
    }
    let message =
        format!("{related}; state the relationship in the campaign file: [relationship] stated = \"...\"");
    Err(CampaignError::new(Stage::Pin, Cause::BadInput, message))
}

fn checkout(
    repository: &Path,
    context: &Context<'_>,
    side: Side,
    pinned: &Pinned,
) -> Result<Checkout, CampaignError> {
    let folder = context.work.join("checkout").join(side.letter());
    let cause = |error: &CheckoutError| match error {
        CheckoutError::Folder(_) => Cause::HostUnfit,
        _ => Cause::BadInput,
    };
    Checkout::create(repository, pinned, &folder, CheckoutOptions::default())
        .map_err(|error| CampaignError::new(Stage::Pin, cause(&error), error))
}

fn apply(
    context: &Context<'_>,
    patch: &Patch,
    checkouts: &mut Both<Checkout>,
) -> Result<AppliedPatch, CampaignError> {
    let file = PatchFile::read(&context.resolve(&patch.file)).at(Stage::Pin, Cause::BadInput)?;
    if file.sha256 != patch.sha256 {
        let message = format!(
            "patch {} has digest {}, the campaign file says {}",
            file.name, file.sha256, patch.sha256
        );
        return Err(CampaignError::new(Stage::Pin, Cause::BadInput, message));
    }
    context.write_file(Stage::Pin, &format!("inputs/{}", file.name), file.bytes())?;
    apply_to(&file, patch.revision, checkouts).at(Stage::Pin, Cause::BadInput)?;
    Ok(AppliedPatch {
        kind: patch.kind,
        revision: patch.revision,
        file: file.name.clone(),
        sha256: file.sha256,
    })
}

fn apply_to(file: &PatchFile, target: PatchTarget, checkouts: &mut Both<Checkout>) -> Result<(), PatchError> {
    if matches!(target, PatchTarget::Both | PatchTarget::Baseline) {
        checkouts.baseline.apply(file)?;
    }
    if matches!(target, PatchTarget::Both | PatchTarget::Candidate) {
        checkouts.candidate.apply(file)?;
    }
    Ok(())
}

fn describe(pinned: &Pinned, revision: &Revision) -> PinnedRevision {
    PinnedRevision {
        commit: pinned.commit.to_string(),
        tree: pinned.tree.to_string(),
        label: revision.label.clone(),
    }
}
