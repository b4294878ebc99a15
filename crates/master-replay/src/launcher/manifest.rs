//! What was launched, how, and from which files: `manifest.json`.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use canonical_json::Sha256;
use serde_json::{Value, json};

use super::master::Program;
use super::{LaunchError, MasterSource, Session, base_name, system, write_json};

impl Session<'_> {
    pub(super) fn write_manifest(
        &self,
        program: &Program,
        arguments: &[String],
        private: &Result<(), String>,
    ) -> Result<(), LaunchError> {
        let master = json!({
            "master_command": std::iter::once(base_name(&program.path)).chain(arguments.iter().cloned()).collect::<Vec<_>>(),
            "private_network": private.is_ok(),
            "no_private_network_because": private.as_ref().err(),
            "binary_sha256": { "master": sha256(&program.path)?, "replayer": sha256(&self.launch.replayer)? },
        });
        self.write_manifest_with(master)
    }

    pub(super) fn write_connect_manifest(&self) -> Result<(), LaunchError> {
        self.write_manifest_with(json!({
            "master_command": null,
            "private_network": false,
            "no_private_network_because": "the master runs already",
            "binary_sha256": { "master": null, "replayer": sha256(&self.launch.replayer)? },
        }))
    }

    fn write_manifest_with(&self, mut manifest: Value) -> Result<(), LaunchError> {
        let launch = self.launch;
        let connect = match &launch.master {
            MasterSource::Running { address, metrics, may_be_used } => {
                Some(json!({ "address": address, "metrics": metrics, "allow_used_master": may_be_used }))
            }
            _ => None,
        };
        let started = connect.is_none();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let common = json!({
            "schema": "kvrp.master-replay-manifest.v1",
            "trace": base_name(&launch.trace),
            "trace_sha256": sha256(&launch.trace)?,
            "prefill_trace": launch.prefill.as_deref().map(base_name),
            "prefill_trace_sha256": launch.prefill.as_deref().map(sha256).transpose()?,
            "replay_command": [base_name(&launch.replayer), "drive"],
            "platform": format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
            "cpu_count": std::thread::available_parallelism().map_or(1, usize::from),
            "started_unix_s": now.as_secs(),
            "payload": "metadata_only",
            "parameters": {
                "replay": launch.options,
                "replayers": launch.replayers,
                "master_cpus": launch.master_cpus,
                "replay_cpus": launch.replay_cpus,
                "rpc_threads": started.then(|| launch.rpc_threads()),
                "master": started.then_some(&launch.settings),
                "connect": connect,
                "sample_interval_s": launch.sample_interval.as_secs_f64(),
                "timeout_s": launch.timeout.as_secs_f64(),
                "require_eviction": launch.require_eviction,
                "require_allocator": launch.require_allocator,
                "allow_open_metrics": launch.allow_open_metrics,
            },
        });
        if let (Some(manifest), Value::Object(common)) = (manifest.as_object_mut(), common) {
            manifest.extend(common);
        }
        Ok(write_json(&self.out.join("manifest.json"), &manifest)?)
    }
}

fn sha256(path: &Path) -> Result<String, LaunchError> {
    Sha256::of_file(path).map(|(sha256, _)| sha256.to_string()).map_err(system("read a file for its digest"))
}
