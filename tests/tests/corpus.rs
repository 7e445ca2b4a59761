//! Every file of the fuzz corpus is tried again, and the seeds among them are what the code makes of honest transcripts.

use std::fs;
use std::path::{Path, PathBuf};

use kafscale_proxy_tests::fuzz::{TARGETS, seeds};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

#[test]
fn every_input_is_survived() {
    for (target, body) in TARGETS {
        let mut files: Vec<_> = fs::read_dir(corpus().join(target))
            .unwrap_or_else(|error| panic!("{target} has a corpus: {error}"))
            .map(|file| file.expect("the folder can be read").path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{target} has a corpus");
        for file in files {
            println!("{}", file.display());
            body(&fs::read(&file).expect("the file can be read"));
        }
    }
}

/// `fuzz/run` builds and runs what is listed there.
#[test]
fn every_body_is_a_fuzz_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let listed = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the workspace of the targets is there");
    for (target, _) in TARGETS {
        let path = format!("fuzz_targets/{target}.rs");
        assert!(listed.contains(&format!("name = \"{target}\"\npath = \"{path}\"")), "{target} is listed");
        let thin = fs::read_to_string(fuzz.join(path)).expect("the target is there");
        assert!(thin.contains(&format!("fuzz::{target}(input)")), "{target} calls its body");
    }
}

/// `KAFSCALE_PROXY_WRITE_SEEDS=1 cargo test --test corpus` writes them anew.
#[test]
fn seeds_are_what_the_code_makes() {
    let write = std::env::var_os("KAFSCALE_PROXY_WRITE_SEEDS").is_some();
    for (target, name, content) in seeds() {
        let file = corpus().join(target).join(&name);
        if write {
            fs::create_dir_all(corpus().join(target)).expect("the folder can be made");
            fs::write(&file, &content).expect("the file can be written");
        }
        assert_eq!(fs::read(&file).ok(), Some(content), "{}", file.display());
    }
}
