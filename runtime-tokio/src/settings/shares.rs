//! What a shard gets of the limits of the process.
//!
//! A limit is divided, and each share must still fit the largest thing that the settings allow: what one shard takes in, that
//! shard must be able to finish. Where a share of memory had to be raised for that, all shards together may hold more than
//! the limit says, and the start says so.

use kafscale_proxy_core::{Config, LfsConfig};

/// Bytes before a Kafka frame, which count as part of it.
const LENGTH_PREFIX: usize = 4;

/// The configuration of one of `shards` shards.
pub(super) fn of_shard(process: &Config, shards: usize, shard: usize) -> Config {
    let shards = shards.max(1);
    let mut config = process.clone();
    let share = |whole: usize| (whole / shards).max(1);
    config.first_shard = shard == 0;
    let listener = &mut config.listener;
    listener.frame_memory_bytes = share(listener.frame_memory_bytes).max(largest_frame(listener.request_max_bytes));
    listener.small_request_memory_bytes = share(listener.small_request_memory_bytes);
    listener.answer_memory_bytes = share(listener.answer_memory_bytes);
    listener.connections = share(listener.connections);
    if let Some(lfs) = &mut config.lfs {
        lfs.upload_memory_bytes = share(lfs.upload_memory_bytes).max(largest_part(lfs));
        lfs.download_disk_bytes = (lfs.download_disk_bytes / shards as u64).max(largest_file(lfs)).max(1);
        // What does not fit into memory is verified on disk.
        lfs.download_memory_bytes = lfs.download_memory_bytes.min(lfs.upload_memory_bytes as u64);
        lfs.exchanges = share(lfs.exchanges);
    }
    config
}

fn largest_frame(request_max_bytes: usize) -> usize {
    request_max_bytes.saturating_add(LENGTH_PREFIX)
}

/// The largest part of the largest blob. Without a limit for blobs it is the usual part: larger ones are refused when they come.
fn largest_part(lfs: &LfsConfig) -> usize {
    usize::try_from(lfs.part_bytes(lfs.max_blob_bytes)).unwrap_or(usize::MAX)
}

/// The largest blob, or all there is when that is less.
fn largest_file(lfs: &LfsConfig) -> u64 {
    lfs.max_blob_bytes.unwrap_or(u64::MAX).min(lfs.download_disk_bytes)
}

/// What an operator should know about the shares.
pub(super) fn warnings(process: &Config, shards: usize) -> Vec<String> {
    let share = of_shard(process, shards, 0);
    let mut warnings = Vec::new();
    let mut raised = |variable: &str, whole: u64, share: u64| {
        let together = share.saturating_mul(shards.max(1) as u64);
        if together > whole {
            warnings.push(format!(
                "{variable} is {whole}, but each of {shards} shards must fit its largest item: together they may take {together} bytes"
            ));
        }
    };
    raised(
        "KAFSCALE_PROXY_FRAME_MEMORY_BYTES",
        process.listener.frame_memory_bytes as u64,
        share.listener.frame_memory_bytes as u64,
    );
    if let (Some(whole), Some(share)) = (&process.lfs, &share.lfs) {
        let memory = "KAFSCALE_LFS_PROXY_UPLOAD_MEMORY_BYTES";
        raised(memory, whole.upload_memory_bytes as u64, share.upload_memory_bytes as u64);
        if whole.max_blob_bytes.is_none_or(|blob| blob > whole.download_disk_bytes) {
            warnings.push(format!(
                "blobs above KAFSCALE_LFS_PROXY_DOWNLOAD_DISK_BYTES ({} bytes) can be uploaded, and downloaded by presigned URL only",
                whole.download_disk_bytes
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;

    fn process(change: impl FnOnce(&mut Config, &mut LfsConfig)) -> Config {
        let (mut config, mut lfs) = (Config::default(), LfsConfig::default());
        change(&mut config, &mut lfs);
        Config { lfs: Some(lfs), ..config }
    }

    /// Every divided limit of every shard, with settings small and large: the largest item fits.
    #[test]
    fn the_largest_item_fits_whatever_the_number_of_shards() {
        let table = [
            process(|_, _| {}),
            process(|config, _| config.listener.request_max_bytes = i32::MAX as usize),
            process(|config, lfs| {
                config.listener.frame_memory_bytes = 1;
                config.listener.small_request_memory_bytes = 1;
                config.listener.answer_memory_bytes = 1;
                config.listener.connections = 1;
                lfs.upload_memory_bytes = 1;
                lfs.download_disk_bytes = 1;
                lfs.exchanges = 1;
            }),
            process(|_, lfs| lfs.chunk_bytes = 1 << 30),
            process(|_, lfs| lfs.download_memory_bytes = 100 * MIB),
            process(|_, lfs| lfs.max_blob_bytes = Some(TIB)),
            process(|_, lfs| lfs.max_blob_bytes = None),
            process(|_, lfs| {
                lfs.max_blob_bytes = Some(7 * GIB);
                lfs.download_disk_bytes = 8 * GIB;
            }),
        ];
        for whole in table {
            let of_process = whole.lfs.clone().unwrap();
            for shards in 1..=64 {
                for shard in [0, shards - 1] {
                    let config = of_shard(&whole, shards, shard);
                    let lfs = config.lfs.unwrap();
                    let say = format!("{shards} shards of {whole:?}");
                    assert_eq!(config.first_shard, shard == 0, "{say}");
                    assert!(config.listener.frame_memory_bytes >= config.listener.request_max_bytes + 4, "{say}");
                    assert!(config.listener.small_request_memory_bytes >= 1, "{say}");
                    assert!(config.listener.answer_memory_bytes >= 1, "{say}");
                    assert!(config.listener.connections >= 1 && lfs.exchanges >= 1, "{say}");
                    let memory = lfs.upload_memory_bytes as u64;
                    assert!(memory >= lfs.part_bytes(None) && memory >= lfs.part_bytes(lfs.max_blob_bytes), "{say}");
                    assert!(memory >= MIB, "the body of a download request: {say}");
                    assert!(memory >= lfs.download_memory_bytes, "{say}");
                    let blob = of_process.max_blob_bytes.unwrap_or(u64::MAX).min(of_process.download_disk_bytes);
                    assert!(lfs.download_disk_bytes >= blob, "{say}");
                    assert!(lfs.download_disk_bytes <= of_process.download_disk_bytes, "{say}");
                }
            }
        }
    }

    #[test]
    fn shares_add_up_to_the_limit_while_they_fit() {
        let config = of_shard(&process(|_, _| {}), 4, 1);
        assert_eq!(config.listener.connections, 12_500);
        assert_eq!(config.listener.frame_memory_bytes, 128 << 20);
        assert_eq!(config.listener.small_request_memory_bytes, 128 << 20);
        assert_eq!(config.listener.answer_memory_bytes, 128 << 20);
        let lfs = config.lfs.unwrap();
        assert_eq!((lfs.upload_memory_bytes, lfs.exchanges), (64 << 20, 1_024));
        assert_eq!(lfs.download_disk_bytes, 5 * GIB);
        let few = process(|_, lfs| lfs.max_blob_bytes = Some(GIB));
        assert_eq!(of_shard(&few, 4, 0).lfs.unwrap().download_disk_bytes, 10 * GIB / 4);
    }

    #[test]
    fn shares_that_had_to_be_raised_are_told() {
        let told = |config: &Config, shards| warnings(config, shards).join("\n");
        assert_eq!(told(&process(|_, _| {}), 4), "");
        let raised = told(&process(|_, _| {}), 8);
        assert!(raised.contains("FRAME_MEMORY_BYTES is 536870912") && raised.contains("838860832 bytes"), "{raised}");
        let small = told(&process(|_, lfs| lfs.download_disk_bytes = GIB), 1);
        assert!(small.contains("presigned URL only") && small.contains("1073741824"), "{small}");
        assert!(told(&process(|_, lfs| lfs.max_blob_bytes = None), 1).contains("presigned URL only"));
    }
}
