//! How much memory this process may use: that of the machine, or less where a control group (version 1 or 2) says so.

use std::path::{Path, PathBuf};

const MACHINE: &str = "/proc/meminfo";
const GROUPS: &str = "/proc/self/cgroup";
const MOUNT: &str = "/sys/fs/cgroup";

/// The least limit that holds for this process; `None` where nothing is known.
pub fn limit_bytes() -> Option<u64> {
    limit_of(&|path| std::fs::read_to_string(path).ok())
}

/// The same with files that `read` reads.
fn limit_of(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let machine = read(Path::new(MACHINE)).and_then(|text| machine_bytes(&text));
    let groups = read(Path::new(GROUPS)).unwrap_or_default();
    let of_groups = groups.lines().flat_map(limit_files).filter_map(|file| {
        // Without a limit it is a word, or a number beyond all memory.
        read(&file)?.trim().parse().ok()
    });
    of_groups.chain(machine).min()
}

fn machine_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The files with the limits of a group and of all groups around it. In a container the path of the group may be that of the host,
/// which is not there; the group of the container is at the root then.
fn limit_files(line: &str) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = if controllers.is_empty() {
        (PathBuf::from(MOUNT), "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (Path::new(MOUNT).join("memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    let group = group.trim_start_matches('/');
    let around = Path::new(group).ancestors();
    around.map(|group| root.join(group).join(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let files: HashMap<&Path, &str> = files.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
        limit_of(&|path| files.get(path).map(|text| (*text).to_owned()))
    }

    const MEMORY: (&str, &str) = (MACHINE, "MemTotal:       16777216 kB\nMemFree: 1 kB\n");

    #[test]
    fn without_groups_it_is_the_memory_of_the_machine() {
        assert_eq!(limit(&[MEMORY]), Some(16 << 30));
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn the_least_limit_of_version_2_holds_wherever_it_stands() {
        let groups = (GROUPS, "0::/a/b\n");
        let own = ("/sys/fs/cgroup/a/b/memory.max", "2147483648\n");
        let around = ("/sys/fs/cgroup/a/memory.max", "1073741824\n");
        let unlimited = ("/sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(limit(&[MEMORY, groups, own]), Some(2 << 30));
        assert_eq!(limit(&[MEMORY, groups, own, around]), Some(1 << 30));
        assert_eq!(limit(&[MEMORY, groups, unlimited]), Some(16 << 30));
        let in_container = ("/sys/fs/cgroup/memory.max", "536870912\n");
        assert_eq!(limit(&[MEMORY, (GROUPS, "0::/\n"), in_container]), Some(512 << 20));
    }

    #[test]
    fn version_1_is_read_as_well() {
        let groups = (GROUPS, "8:pids:/\n4:memory,hugetlb:/docker/x\n1:cpu:/docker/x\n0::/\n");
        let root = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
        assert_eq!(limit(&[MEMORY, groups, root]), Some(1 << 30));
        let own = ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "536870912\n");
        assert_eq!(limit(&[MEMORY, groups, root, own]), Some(512 << 20));
        let unlimited = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit(&[MEMORY, groups, unlimited]), Some(16 << 30));
        assert_eq!(limit(&[MEMORY, (GROUPS, "x\n::\n:memory\n")]), Some(16 << 30));
    }
}
