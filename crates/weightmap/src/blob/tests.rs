use std::sync::Mutex;

use weightmap_testkit::TempModel;

use super::*;

/// So many bytes that repeat nowhere near a piece.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|place| (place * 7 + place / 251).to_le_bytes()[0]).collect()
}

/// Digests of `content`, SHA-256 and as of `git hash-object`, by the tools of those names.
const DIGESTS: [(usize, &str, &str); 5] = [
    (
        0,
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    ),
    (
        3,
        "b361d0f9a938a2bb4fbdc9c21dc5a859788041b0040919d8a811c1888184f4df",
        "a83df337f6d24338c9ad0dbdc0068674b49dfa11",
    ),
    (
        8 << 20,
        "b1a20dbfdb41edc58871ba0ecb4c43c1fc23721eca821757de7a6ababe8908e9",
        "35e3016935f5ccc02a58aaa3df652a7e4cccc1dc",
    ),
    (
        (8 << 20) + 1,
        "4a270827a1104306faaf0ae766aabe32bb824ff1d8ce09aa3ebd2fadf81ca8f9",
        "511be7ca161bec25ec2606ff6c3e0f9e20926d82",
    ),
    (
        (16 << 20) + 5,
        "9da52d9109acd6f4d1b026c6c64839499be6a959c2362aefbff5b4e0190965af",
        "59546a03b2e60d8d592126a0c8c65dd8fef5770f",
    ),
];
const SHA256_OF_3: &str = DIGESTS[1].1;
const SHA1_OF_3: &str = DIGESTS[1].2;

/// A repository of the cache that has one blob.
fn repository(name: &str, content: &[u8]) -> (TempModel, PathBuf) {
    let repository = TempModel::empty();
    let blob = repository.file("blobs").join(name);
    fs::create_dir_all(repository.file("blobs")).unwrap();
    fs::write(&blob, content).unwrap();
    (repository, blob)
}

fn blob_of(path: &Path) -> Blob {
    Blob::of(path).unwrap().unwrap_or_else(|| panic!("{} leads to no blob", path.display()))
}

#[test]
fn content_that_has_the_digest_of_its_name_is_right_at_any_length() {
    for (bytes, sha256, sha1) in DIGESTS {
        for name in [sha256, sha1] {
            let (_repository, path) = repository(name, &content(bytes));
            let blob = blob_of(&path);
            assert_eq!(blob.name(), name);
            let read = AtomicU64::new(0);
            blob.verify(|more| _ = read.fetch_add(more, Relaxed)).unwrap();
            assert_eq!(read.into_inner(), bytes as u64);
        }
    }
}

#[test]
fn one_bit_anywhere_makes_a_difference_that_names_blob_and_digests() {
    let (bytes, sha256, sha1) = DIGESTS[4];
    for name in [sha256, sha1] {
        for place in [0, (8 << 20) - 1, 8 << 20, bytes - 1] {
            let mut content = content(bytes);
            content[place] ^= 1;
            let (_repository, path) = repository(name, &content);
            let error = blob_of(&path).verify(|_| ()).unwrap_err();
            let Error::BlobDiffers { blob, expected, found, .. } = &error else { panic!("{error}") };
            assert_eq!((blob, expected.as_str()), (&path, name));
            assert_ne!(found, name);
            assert_eq!(found.len(), name.len());
        }
    }
}

#[test]
fn the_message_says_what_to_delete() {
    let (_repository, path) = repository(SHA256_OF_3, b"abc");
    let error = blob_of(&path).verify(|_| ()).unwrap_err();
    assert_eq!((error.kind(), error.path()), ("BlobDiffers", Some(&*path)));
    let found = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let says = format!("expected SHA-256 {SHA256_OF_3}, found {found}; delete {} and", path.display());
    assert!(error.to_string().contains(&says), "{error}");
}

#[test]
fn content_that_was_cut_or_goes_on_is_another() {
    for bytes in [0, 2, 4] {
        for name in [SHA256_OF_3, SHA1_OF_3] {
            let (_repository, path) = repository(name, &content(bytes));
            let error = blob_of(&path).verify(|_| ()).unwrap_err();
            assert_eq!(error.kind(), "BlobDiffers", "{bytes} {name}");
        }
    }
}

#[test]
fn only_a_digest_in_blobs_is_the_name_of_a_blob() {
    let upper = SHA256_OF_3.to_uppercase();
    let other = format!("{}g", &SHA256_OF_3[..63]);
    let longer = format!("{SHA256_OF_3}0");
    let unfinished = format!("{SHA256_OF_3}.incomplete");
    for name in [&SHA256_OF_3[..63], &longer, &upper, &other, &unfinished, "model.safetensors"] {
        let (_repository, path) = repository(name, &content(3));
        assert_eq!(Blob::of(&path).unwrap(), None, "{name}");
    }
    let elsewhere = TempModel::empty();
    fs::write(elsewhere.file(SHA256_OF_3), content(3)).unwrap();
    assert_eq!(Blob::of(elsewhere.file(SHA256_OF_3)).unwrap(), None);
}

#[test]
fn where_nothing_is_is_no_blob_but_an_error() {
    let empty = TempModel::empty();
    let path = empty.file("model.safetensors");
    let error = Blob::of(&path).unwrap_err();
    assert_eq!((error.kind(), error.path()), ("Io", Some(&*path)));
}

#[test]
fn a_blob_that_is_not_there_or_no_file_is_an_error_of_its_own() {
    let (_repository, path) = repository(SHA256_OF_3, b"");
    fs::remove_file(&path).unwrap();
    assert_eq!(blob_of(&path).verify(|_| ()).unwrap_err().kind(), "Io");
    fs::create_dir(&path).unwrap();
    assert_eq!(blob_of(&path).verify(|_| ()).unwrap_err().kind(), "NotRegularFile");
}

#[test]
fn who_writes_to_a_blob_while_it_is_read_is_found_out() {
    let (bytes, sha256, _) = DIGESTS[4];
    let change_after_first_piece = |change: fn(&Path)| {
        let (_repository, path) = repository(sha256, &content(bytes));
        let first = Mutex::new(true);
        blob_of(&path).verify(|_| {
            if std::mem::take(&mut *first.lock().unwrap()) {
                change(&path);
            }
        })
    };
    let cut = |path: &Path| File::options().write(true).open(path).unwrap().set_len(9 << 20).unwrap();
    let grow = |path: &Path| File::options().write(true).open(path).unwrap().set_len(20 << 20).unwrap();
    assert_eq!(change_after_first_piece(cut).unwrap_err().kind(), "ShardChanged");
    assert_eq!(change_after_first_piece(grow).unwrap_err().kind(), "ShardChanged");
    // What was opened is read to its end, whatever is put in its place.
    change_after_first_piece(|path| fs::remove_file(path).unwrap()).unwrap();
}

#[test]
fn of_many_all_that_differ_are_told_in_their_order() {
    let repository = TempModel::empty();
    fs::create_dir(repository.file("blobs")).unwrap();
    let blobs: Vec<_> = DIGESTS
        .iter()
        .flat_map(|(bytes, sha256, sha1)| [(*bytes, *sha256), (*bytes, *sha1)])
        .enumerate()
        .map(|(place, (bytes, name))| {
            let path = repository.file("blobs").join(name);
            fs::write(&path, content(if place % 3 == 1 { bytes + 1 } else { bytes })).unwrap();
            blob_of(&path)
        })
        .collect();
    let all: u64 = blobs.iter().map(|blob| fs::metadata(blob.path()).unwrap().len()).sum();
    for workers in [0, 1, 3, 100] {
        let most = AtomicU64::new(0);
        let errors = Blob::verify_all(&blobs, workers, |done, of| {
            assert_eq!(of, all);
            most.fetch_max(done, Relaxed);
        });
        let differ: Vec<_> = errors.iter().filter_map(Error::path).collect();
        let expected: Vec<_> = blobs.iter().skip(1).step_by(3).map(Blob::path).collect();
        assert_eq!(differ, expected, "{workers}");
        assert!(errors.iter().all(|error| error.kind() == "BlobDiffers"), "{errors:?}");
        assert_eq!(most.into_inner(), all);
    }
    assert!(Blob::verify_all(&[], 4, |_, _| ()).is_empty());
}

#[cfg(unix)]
mod links {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A snapshot beside the blobs.
    fn snapshot(repository: &TempModel) -> PathBuf {
        let snapshot = repository.file("snapshots").join("main");
        fs::create_dir_all(&snapshot).unwrap();
        snapshot
    }

    #[test]
    fn a_file_of_a_snapshot_is_the_blob_that_it_links_to() {
        let (repository, blob) = repository(SHA256_OF_3, &content(4));
        let path = snapshot(&repository).join("model.safetensors");
        symlink(format!("../../blobs/{SHA256_OF_3}"), &path).unwrap();
        let found = blob_of(&path);
        assert_eq!((found.path(), found.name(), found.hash()), (&*path, SHA256_OF_3, "SHA-256"));
        let error = found.verify(|_| ()).unwrap_err();
        assert_eq!(error.path(), Some(&*path));
        fs::write(blob, content(3)).unwrap();
        found.verify(|_| ()).unwrap();
    }

    #[test]
    fn several_links_lead_to_the_same_blob() {
        let (repository, blob) = repository(SHA1_OF_3, &content(3));
        let snapshot = snapshot(&repository);
        symlink(&blob, snapshot.join("third")).unwrap();
        symlink("third", snapshot.join("second")).unwrap();
        symlink(snapshot.join("second"), repository.file("first")).unwrap();
        let found = blob_of(&repository.file("first"));
        assert_eq!((found.name(), found.hash()), (SHA1_OF_3, "git SHA-1"));
        found.verify(|_| ()).unwrap();
    }

    #[test]
    fn a_blob_may_itself_be_a_link_and_its_directory_too() {
        let (repository, blob) = repository(SHA256_OF_3, b"");
        fs::remove_file(&blob).unwrap();
        fs::write(repository.file("store"), content(3)).unwrap();
        symlink("../store", &blob).unwrap();
        blob_of(&blob).verify(|_| ()).unwrap();

        symlink("blobs", repository.file("by another name")).unwrap();
        blob_of(&repository.file("by another name").join(SHA256_OF_3)).verify(|_| ()).unwrap();

        fs::rename(repository.file("blobs"), repository.file("moved")).unwrap();
        symlink("moved", repository.file("blobs")).unwrap();
        blob_of(&blob).verify(|_| ()).unwrap();
    }

    #[test]
    fn a_link_to_another_file_or_around_in_circles_leads_to_no_blob() {
        let empty = TempModel::empty();
        fs::write(empty.file("a"), "").unwrap();
        symlink("a", empty.file("b")).unwrap();
        assert_eq!(Blob::of(empty.file("b")).unwrap(), None);
        symlink("round", empty.file("round")).unwrap();
        assert_eq!(Blob::of(empty.file("round")).unwrap(), None);
        symlink("nowhere", empty.file("lost")).unwrap();
        assert_eq!(Blob::of(empty.file("lost")).unwrap_err().kind(), "Io");
    }

    #[test]
    fn a_link_that_dangles_still_tells_its_blob() {
        let empty = TempModel::empty();
        symlink(format!("../blobs/{SHA256_OF_3}"), empty.file("model.safetensors")).unwrap();
        let found = blob_of(&empty.file("model.safetensors"));
        assert_eq!(found.verify(|_| ()).unwrap_err().kind(), "Io");
    }
}
