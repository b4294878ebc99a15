//! Starting a master: which file, which flags, which allocator.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cpu_placement::{CancelToken, Output, Run};

use super::LaunchError;

/// How long a master may take to print its flags.
const HELP_WITHIN: Duration = Duration::from_secs(20);

/// The executable and what it needs to find its libraries.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    library_path: Vec<PathBuf>,
}

impl Program {
    /// An executable given by itself.
    pub(super) fn elf(path: &Path) -> Result<Self, LaunchError> {
        let path = fs::canonicalize(path).map_err(|source| missing(path, source))?;
        Ok(Program { path, library_path: Vec::new() })
    }

    /// The executable inside the package that is installed in a Python environment, not the script beside it; the
    /// libraries of companion packages are put on its path.
    pub(super) fn in_python_env(folder: &Path) -> Result<Self, LaunchError> {
        let folder = fs::canonicalize(folder).map_err(|source| missing(folder, source))?;
        let packages = site_packages(&folder);
        let inside = packages.iter().map(|packages| packages.join("mooncake/mooncake_master"));
        let path = inside.into_iter().find(|path| path.is_file()).ok_or_else(|| {
            missing(&folder, io::Error::other("no package in it holds mooncake/mooncake_master"))
        })?;
        let packages = path.ancestors().nth(2).unwrap_or(&folder).to_owned();
        Ok(Program { path, library_path: companion_libraries(&packages) })
    }

    /// The environment of a master: ours, without the variable that would make it read a file of its own.
    pub(super) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
        variables.remove(&OsString::from("MOONCAKE_CONFIG_PATH"));
        if !self.library_path.is_empty() {
            let name = OsString::from("LD_LIBRARY_PATH");
            let before = variables.get(&name).map(std::env::split_paths).into_iter().flatten();
            let all: Vec<PathBuf> = self.library_path.iter().cloned().chain(before).collect();
            // Fails only for a path with a colon, which no loader could use either.
            if let Ok(joined) = std::env::join_paths(all) {
                variables.insert(name, joined);
            }
        }
        variables
    }

    /// Whether the master has a flag, by its own help text.
    pub(super) fn has_flag(&self, flag: &str, out: &Path, cancel: &CancelToken) -> Result<bool, LaunchError> {
        let file = out.join("master-help.txt");
        let mut run = Run::new(&self.path).arg("--help").time_limit(HELP_WITHIN);
        run.env = self.environment();
        run = run.stdout(Output::File(file.clone())).stderr(Output::File(file.clone()));
        // It exits with 1 after printing its flags.
        let finished = run.wait(cancel);
        let text = fs::read(&file).unwrap_or_default();
        let removed = fs::remove_file(&file);
        let finished = finished.map_err(|source| LaunchError::Start { what: "master", source })?;
        removed.map_err(|source| LaunchError::System { what: "remove the master's help text", source })?;
        if cancel.is_cancelled() {
            return Err(LaunchError::Cancelled);
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        if !text.contains("rpc_port") {
            let last = text.lines().last().unwrap_or_default().to_owned();
            return Err(LaunchError::NotAMaster { outcome: format!("{:?}", finished.outcome), last });
        }
        Ok(text.contains(&format!("-{flag} ")))
    }
}

fn missing(path: &Path, source: io::Error) -> LaunchError {
    LaunchError::MasterMissing { path: path.to_owned(), source }
}

/// The folders in which packages may be: the given one itself, and those of an environment.
fn site_packages(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    for lib in ["lib", "lib64"] {
        let pythons = fs::read_dir(folder.join(lib)).into_iter().flatten().flatten();
        found.extend(pythons.map(|python| python.path().join("site-packages")));
    }
    found
}

/// Folders named `lib` of packages below `nvidia`, which some masters are linked with.
fn companion_libraries(packages: &Path) -> Vec<PathBuf> {
    let companions = fs::read_dir(packages.join("nvidia")).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> =
        companions.map(|companion| companion.path().join("lib")).filter(|lib| lib.is_dir()).collect();
    folders.sort();
    folders
}

/// The memory allocator a process has loaded: its name, and the file if it has one of its own.
pub(super) fn allocator(pid: u32) -> io::Result<(String, Option<String>)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5)?.rsplit('/').next());
    let files: Vec<&str> = files.collect();
    for name in ["jemalloc", "tcmalloc", "mimalloc"] {
        if let Some(file) = files.iter().find(|file| file.contains(name)) {
            return Ok((name.to_owned(), Some((*file).to_owned())));
        }
    }
    let libc = files.iter().find(|file| file.starts_with("libc.so") || file.starts_with("libc-"));
    Ok((if libc.is_some() { "glibc" } else { "unknown" }.to_owned(), libc.map(|file| (*file).to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_holds_the_executable_of_the_package() {
        let folder = tempfile::tempdir().expect("a folder");
        let packages = folder.path().join("lib/python3.11/site-packages");
        fs::create_dir_all(packages.join("mooncake")).expect("made");
        fs::create_dir_all(packages.join("nvidia/cuda_runtime/lib")).expect("made");
        assert!(Program::in_python_env(folder.path()).is_err());
        fs::write(packages.join("mooncake/mooncake_master"), "").expect("written");
        let found = Program::in_python_env(folder.path()).expect("found");
        assert!(found.path.ends_with("mooncake/mooncake_master"));
        let libraries = found.environment()[&OsString::from("LD_LIBRARY_PATH")].clone();
        assert!(libraries.to_string_lossy().contains("nvidia/cuda_runtime/lib"));
        assert!(Program::in_python_env(&packages).is_ok());
    }

    #[test]
    fn our_own_allocator_is_known() {
        let (name, _) = allocator(std::process::id()).expect("readable");
        assert!(["glibc", "unknown"].contains(&name.as_str()), "{name}");
    }
}
