//! The crates of the workspace, as cargo knows them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate of the workspace that lies in a group.
pub struct Room {
    pub group: String,
    pub name: String,
    pub folder: PathBuf,
    pub description: String,
    /// The groups of the crates that it is built with; its tests may use others.
    pub uses: Vec<String>,
}

/// All of them, as cargo reads their files.
pub fn rooms() -> Vec<Room> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let metadata = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(workspace)
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let group_of = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let inside = manifest.parent().unwrap().strip_prefix(workspace.join("crates")).ok()?.to_owned();
        Some(inside.parent()?.to_str()?.to_owned())
    };
    let group_by_name = |name: &str| group_of(packages.iter().find(|package| package["name"] == *name)?);
    let room = |package: &Value| {
        let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
        let dependencies = package["dependencies"].as_array()?.iter();
        let built_with = dependencies.filter(|dependency| dependency["kind"] != "dev");
        Some(Room {
            group: group_of(package)?,
            name: folder.file_name()?.to_str()?.to_owned(),
            description: package["description"].as_str().unwrap_or_default().to_owned(),
            uses: built_with.filter_map(|dependency| group_by_name(dependency["name"].as_str()?)).collect(),
            folder,
        })
    };
    let mut rooms: Vec<Room> = packages.iter().filter_map(room).collect();
    rooms.sort_by(|one, other| one.name.cmp(&other.name));
    rooms
}
