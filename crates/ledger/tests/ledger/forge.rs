//! Hostile images: a sound ledger, changed at will, with the checksums made right again where asked.

use base::crc::crc32c;

const BLOCK: usize = 4096;

/// Changes `image` (superblocks, then log) as `input` says. Its first byte: 1 sets the superblocks' checksums
/// right, 2 those of batch headers, 4 those of batch bodies. Then five bytes per change: where (two bytes of
/// block, modulo; two of the byte in it), and what to put there.
pub fn forge(image: &mut [u8], input: &[u8]) {
    let Some((&seal, changes)) = input.split_first() else {
        return;
    };
    let blocks = image.len() / BLOCK;
    for change in changes.chunks_exact(5) {
        let block = usize::from(u16::from_le_bytes([change[0], change[1]])) % blocks;
        // Half of the changes go to where the numbers are.
        let byte = u16::from_le_bytes([change[2], change[3]]);
        let within = if byte & 1 == 0 { 96 } else { BLOCK };
        image[block * BLOCK + usize::from(byte >> 1) % within] = change[4];
    }
    if seal & 1 != 0 {
        for block in image.chunks_exact_mut(BLOCK).take(2) {
            block[12..16].fill(0);
            let crc = crc32c(block).to_le_bytes();
            block[12..16].copy_from_slice(&crc);
        }
    }
    for at in 2..blocks {
        let from = at * BLOCK;
        if !image[from..].starts_with(b"TaLB") {
            continue;
        }
        if seal & 4 != 0 {
            let length =
                u32::from_le_bytes(image[from + 48..from + 52].try_into().expect("4 bytes"));
            let frame = (64 + length as usize).div_ceil(BLOCK) * BLOCK;
            // One around the end of the log is left as it is.
            if from + frame <= image.len() {
                let crc = crc32c(&image[from + 64..from + frame]).to_le_bytes();
                image[from + 56..from + 60].copy_from_slice(&crc);
            }
        }
        if seal & 2 != 0 {
            let crc = crc32c(&image[from + 8..from + 64]).to_le_bytes();
            image[from + 4..from + 8].copy_from_slice(&crc);
        }
    }
}
