//! The profiles with one pattern each, and what holds for all.

use base::{Bytes, Nanos};

use super::super::chance::Zipf;
use super::super::{Fingerprint, GenerateError, Generator, Part, Profile, Settings};
use super::{all, each};
use crate::{HEADER, Op, Request};

fn settings(requests: u64) -> Settings {
    Settings {
        requests: Some(requests),
        ..Settings::default()
    }
}

fn share(requests: &[Request], wanted: impl Fn(&Request) -> bool) -> f64 {
    requests.iter().filter(|request| wanted(request)).count() as f64 / requests.len() as f64
}

/// Off by less than five standard deviations of so many draws?
#[track_caller]
fn near(got: f64, want: f64, draws: usize) {
    let spread = (want * (1.0 - want) / draws as f64).sqrt();
    assert!(
        (got - want).abs() <= 5.0 * spread,
        "{got:.4}, expected {want:.4}"
    );
}

#[test]
fn one_seed_one_trace_and_another_seed_another() {
    for profile in Profile::ALL {
        let one = all(profile, &settings(20_000));
        assert!(one == all(profile, &settings(20_000)), "{profile}");
        let other = Settings {
            seed: 2,
            ..settings(20_000)
        };
        assert!(one != all(profile, &other), "{profile}");
    }
}

#[test]
fn a_longer_run_begins_with_the_shorter_one() {
    for profile in Profile::ALL {
        let long = all(profile, &settings(20_000));
        assert_eq!(long.len(), 20_000);
        assert!(
            long[..7_777] == all(profile, &settings(7_777))[..],
            "{profile}"
        );
        let half = long[10_000].at;
        let by_time = Settings {
            requests: None,
            span: Some(half),
            ..Settings::default()
        };
        let by_time = all(profile, &by_time);
        assert!(long[..by_time.len()] == by_time[..], "{profile}");
        assert!(by_time.iter().all(|request| request.at < half));
        assert!(long[by_time.len()].at >= half);
    }
}

#[test]
fn every_trace_begins_at_0_and_time_does_not_go_back() {
    for profile in Profile::ALL {
        for burst in [None, Some(20.0)] {
            let burst = burst.filter(|_| profile.shape().is_none());
            let requests = all(
                profile,
                &Settings {
                    burst,
                    ..settings(20_000)
                },
            );
            assert_eq!(requests[0].at, Nanos(0), "{profile}");
            assert!(requests.is_sorted_by_key(|request| request.at), "{profile}");
        }
    }
}

#[test]
fn the_fingerprint_is_the_hash_of_the_normal_form() {
    use sha2::{Digest, Sha256};
    let mut text = format!("{HEADER}\n");
    let (mut ours, mut ops) = (Fingerprint::default(), [0; 3]);
    each(Profile::Db, &settings(5_000), |batch| {
        ours.update(batch);
        for request in batch {
            let (op, number) = match request.op {
                Op::Read => ('R', 0),
                Op::Write => ('W', 1),
                Op::Flush => ('F', 2),
                Op::Discard => panic!("a database discards nothing"),
            };
            ops[number] += 1;
            let (at, offset) = (request.at.0 / 1_000, request.offset.0);
            text += &format!("{at},{op},{offset},{},{}\n", request.size.0, request.device);
        }
    });
    assert!(ops.iter().all(|count| *count > 0), "{ops:?}");
    let theirs: Vec<String> = Sha256::digest(&text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(ours.finish(), theirs.concat());
}

#[test]
fn uniform_blocks_pass_a_chi_square_test() {
    let requests = all(Profile::Uniform, &settings(128_000));
    let mut bins = [0u64; 128];
    for request in &requests {
        assert!(request.offset.is_multiple_of(4096) && request.size == Bytes::kib(4));
        bins[(request.offset.0 / (Bytes::gib(64).0 / 128)) as usize] += 1;
    }
    let want = requests.len() as f64 / 128.0;
    let chi: f64 = bins
        .iter()
        .map(|got| (*got as f64 - want).powi(2) / want)
        .sum();
    // 127 degrees of freedom: mean 127, standard deviation 16.
    assert!((63.0..191.0).contains(&chi), "{chi:.0}");
    near(
        share(&requests, |request| request.op == Op::Read),
        0.7,
        requests.len(),
    );
}

#[test]
fn zipf_blocks_have_the_frequencies_of_their_ranks_and_lie_scattered() {
    let of = |theta| Settings {
        size: Some(Bytes::mib(4)),
        theta: Some(theta),
        ..settings(200_000)
    };
    for theta in [0.8, 0.99, 1.2] {
        let requests = all(Profile::Zipf, &of(theta));
        let mut counts = vec![0usize; 1_024];
        for request in &requests {
            counts[(request.offset.0 / 4_096) as usize] += 1;
        }
        let hottest = (0..1_024).max_by_key(|block| counts[*block]).unwrap_or(0);
        assert!((1..1_023).contains(&hottest), "rank 0 lies anywhere");
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        let weights: Vec<f64> = (1..=1_024).map(|k| f64::from(k).powf(-theta)).collect();
        let all: f64 = weights.iter().sum();
        for rank in 0..5 {
            near(
                counts[rank] as f64 / requests.len() as f64,
                weights[rank] / all,
                requests.len(),
            );
        }
        let head = counts[..102].iter().sum::<usize>() as f64 / requests.len() as f64;
        near(
            head,
            weights[..102].iter().sum::<f64>() / all,
            requests.len(),
        );
    }
}

#[test]
fn a_stream_goes_from_block_to_block_and_round() {
    let settings = Settings {
        size: Some(Bytes::mib(64)),
        ..settings(1_000)
    };
    let requests = all(Profile::Sequential, &settings);
    for (number, request) in requests.iter().enumerate() {
        let block = number as u64 % 512;
        assert_eq!(request.offset, Bytes(block * (128 << 10)));
        assert_eq!((request.size, request.op), (Bytes::kib(128), Op::Read));
    }
}

#[test]
fn each_of_several_streams_is_sequential_in_its_own_part() {
    let settings = Settings {
        streams: Some(8),
        block: Some(Bytes::kib(64)),
        ..settings(10_000)
    };
    let requests = all(Profile::Sequential, &settings);
    let part = Bytes::gib(8).0;
    for stream in 0..8 {
        let offsets: Vec<u64> = requests
            .iter()
            .map(|request| request.offset.0)
            .filter(|offset| offset / part == stream)
            .collect();
        assert!(offsets.len() > 1_000);
        assert_eq!(offsets[0], stream * part);
        assert!(
            offsets
                .windows(2)
                .all(|pair| pair[1] == pair[0] + (64 << 10))
        );
    }
}

#[test]
fn mixed_is_streams_of_whole_files_among_random_requests_of_four_sizes() {
    let requests = all(Profile::Mixed, &settings(100_000));
    let draws = requests.len();
    let of = |kib: u64| share(&requests, |request| request.size == Bytes::kib(kib));
    near(of(128), 0.3, draws);
    near(of(4), 0.7 * 0.5, draws);
    near(of(8), 0.7 * 3.0 / 16.0, draws);
    near(of(16), 0.7 * 3.0 / 16.0, draws);
    near(of(64), 0.7 * 0.125, draws);
    // Streams choose what they do once for a file of 68 blocks on average.
    let read = share(&requests, |request| request.op == Op::Read);
    assert!((read - 0.7).abs() < 0.03, "{read:.3}");
    let part = Bytes::gib(16).0;
    for stream in 0..4 {
        let of_stream = |request: &&Request| {
            request.size == Bytes::kib(128) && request.offset.0 / part == stream
        };
        let blocks: Vec<&Request> = requests.iter().filter(of_stream).collect();
        let goes_on = blocks
            .windows(2)
            .filter(|pair| pair[1].offset.0 == pair[0].offset.0 + (128 << 10))
            .count();
        // A new file every 68 blocks.
        let share = goes_on as f64 / blocks.len() as f64;
        assert!((0.975..0.995).contains(&share), "{share:.4}");
    }
}

#[test]
fn the_rate_is_met_with_and_without_bursts() {
    for burst in [1.0, 32.0] {
        for iops in [50.0, 20_000.0] {
            let settings = Settings {
                iops: Some(iops),
                burst: Some(burst),
                ..settings(200_000)
            };
            let requests = all(Profile::Uniform, &settings);
            let seconds = requests.last().map_or(0.0, |last| last.at.secs_f64());
            let got = requests.len() as f64 / seconds;
            // 200,000 in bursts of 32 are 6,250 gaps: five standard errors are 8 %.
            let bound = if burst > 1.0 { 0.09 } else { 0.012 };
            assert!(
                (got / iops - 1.0).abs() < bound,
                "{got:.0} of {iops} in bursts of {burst}"
            );
            // What follows within a quarter of the mean gap: 22 % of a Poisson process, most of a burst.
            let close =
                |pair: &&[Request]| (pair[1].at.0 - pair[0].at.0) as f64 / 1e9 < 0.25 / iops;
            let close = requests.windows(2).filter(close).count() as f64 / requests.len() as f64;
            match burst > 1.0 {
                true => assert!(close > 0.9, "{close:.2}"),
                false => assert!((0.2..0.25).contains(&close), "{close:.2}"),
            }
        }
    }
}

#[test]
fn a_database_reads_pages_by_rank_writes_a_log_and_checkpoints() {
    let settings = Settings {
        size: Some(Bytes::mib(1_024)),
        iops: Some(2_000.0),
        checkpoint: Some(Nanos::secs(20)),
        ..settings(300_000)
    };
    let requests = all(Profile::Db, &settings);
    let log_from = Bytes::mib(960).0;
    let (log, pages): (Vec<&Request>, Vec<&Request>) = requests
        .iter()
        .filter(|request| request.op != Op::Flush)
        .partition(|request| request.offset.0 >= log_from);
    let both = log.len() + pages.len();
    let reads = pages
        .iter()
        .filter(|request| request.op == Op::Read)
        .count();
    near(reads as f64 / both as f64, 0.7, both);

    // The log: writes, each where the one before ended, but where it begins anew.
    assert!(log.iter().all(|request| request.op == Op::Write));
    let anew = log
        .windows(2)
        .filter(|pair| pair[1].offset.0 != pair[0].offset.0 + pair[0].size.0)
        .inspect(|pair| assert_eq!(pair[1].offset.0, log_from))
        .count();
    assert!((5..20).contains(&anew), "{anew}");

    // The tables: 8 KiB pages, the hottest read as often as its rank says.
    assert!(
        pages
            .iter()
            .all(|page| page.size == Bytes::kib(8) && page.offset.is_multiple_of(8 << 10))
    );
    let mut counts = vec![0usize; (log_from / 8_192) as usize];
    for page in pages.iter().filter(|page| page.op == Op::Read) {
        counts[(page.offset.0 / 8_192) as usize] += 1;
    }
    let all_weights: f64 = (1..=counts.len()).map(|k| (k as f64).powf(-0.99)).sum();
    let hottest = counts.iter().copied().max().unwrap_or(0);
    near(hottest as f64 / reads as f64, 1.0 / all_weights, reads);

    // Checkpoints: pages ascend, none twice, a flush behind the last; the log is flushed by groups of eight.
    let written: Vec<u64> = pages
        .iter()
        .filter(|page| page.op == Op::Write)
        .map(|page| page.offset.0)
        .collect();
    let descents = written.windows(2).filter(|pair| pair[1] <= pair[0]).count();
    let seconds = requests.last().map_or(0.0, |last| last.at.secs_f64());
    let checkpoints = (seconds / 20.0) as usize;
    assert!(
        checkpoints >= 5 && descents.abs_diff(checkpoints) <= 2,
        "{descents} of {checkpoints}"
    );
    let flushes = requests
        .iter()
        .filter(|request| request.op == Op::Flush)
        .count();
    assert!(
        flushes.abs_diff(log.len() / 8 + checkpoints) <= 2,
        "{flushes}"
    );
    assert!(written.len() > 1_000);
}

#[test]
fn a_database_with_little_room_for_its_log_and_constant_checkpoints_goes_on() {
    let settings = Settings {
        size: Some(Bytes::mib(4)),
        read_share: Some(0.0),
        checkpoint: Some(Nanos::millis(1)),
        ..settings(50_000)
    };
    let requests = all(Profile::Db, &settings);
    assert_eq!(requests.len(), 50_000);
    assert!(
        requests
            .iter()
            .all(|request| request.offset.0 + request.size.0 <= 4 << 20)
    );
    assert!(requests.iter().all(|request| request.op != Op::Read));
}

#[test]
fn the_largest_volume_is_used_from_end_to_end_and_not_beyond() {
    for profile in [
        Profile::Zipf,
        Profile::Uniform,
        Profile::Mixed,
        Profile::Db,
        Profile::Sequential,
    ] {
        let size = Bytes(1 << 62);
        let requests = all(
            profile,
            &Settings {
                size: Some(size),
                ..settings(2_000)
            },
        );
        assert!(
            requests
                .iter()
                .all(|request| request.offset.0 + request.size.0 <= size.0),
            "{profile}"
        );
    }
}

#[test]
fn what_a_profile_has_not_is_refused_with_what_it_has() {
    let error = |profile, settings: Settings| match Generator::new(profile, &settings) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{profile} takes {settings:?}"),
    };
    let none = Settings::default;
    assert_eq!(
        error(
            Profile::Src1_0,
            Settings {
                iops: Some(9.0),
                ..none()
            }
        ),
        "profile src1-0 has no iops; it has seed, requests, for, part"
    );
    assert_eq!(
        error(
            Profile::Uniform,
            Settings {
                part: Some(Part::Both),
                ..none()
            }
        ),
        "profile uniform has no part; it has seed, requests, for, size, iops, burst, read-share, block"
    );
    assert_eq!(
        error(
            Profile::Zipf,
            Settings {
                read_share: Some(7.0),
                ..none()
            }
        ),
        "read-share 7 is out of bounds for profile zipf; it lies in 0 to 1"
    );
    assert_eq!(
        error(
            Profile::Zipf,
            Settings {
                theta: Some(f64::NAN),
                ..none()
            }
        ),
        "theta NaN is out of bounds for profile zipf; it lies in 0 to 10"
    );
    assert_eq!(
        error(
            Profile::Uniform,
            Settings {
                size: Some(Bytes::kib(4)),
                ..none()
            }
        ),
        "size 4.0 KiB is out of bounds for profile uniform; it lies in 64.0 KiB to 4.0 EiB"
    );
    assert!(matches!(
        Generator::new(
            Profile::Uniform,
            &Settings {
                block: Some(Bytes(700)),
                ..none()
            }
        ),
        Err(GenerateError::Sectors { block: Bytes(700) })
    ));
}

#[test]
fn profiles_are_known_by_name_and_origins_say_that_they_are_generated() {
    for profile in Profile::ALL {
        assert_eq!(profile.name().parse::<Profile>().ok(), Some(profile));
        assert!(!profile.about().is_empty());
    }
    let error = "src1_0"
        .parse::<Profile>()
        .map_err(|error| error.to_string());
    let known = "src1-0, src1-1, zipf, uniform, sequential, mixed, db, drifting";
    assert_eq!(
        error,
        Err(format!("there is no profile src1_0; known are {known}"))
    );
    let origin = |profile, settings| Generator::new(profile, &settings).map(|trace| trace.origin());
    let both = Settings {
        part: Some(Part::Both),
        seed: 7,
        ..Settings::default()
    };
    assert_eq!(
        origin(Profile::Src1_0, both),
        Ok("generated: src1-0, both, seed 7".to_owned())
    );
    assert_eq!(
        origin(Profile::Zipf, Settings::default()),
        Ok("generated: zipf, seed 1".to_owned())
    );
}

#[test]
fn a_rank_can_be_drawn_among_as_many_as_a_disk_has_sectors() {
    let mut rng = env::Rng::from_seed(1);
    let zipf = Zipf::new(1 << 53, 0.9);
    let ranks: Vec<u64> = (0..1_000).map(|_| zipf.draw(&mut rng)).collect();
    assert!(ranks.iter().any(|rank| *rank < 1 << 30) && ranks.iter().any(|rank| *rank > 1 << 50));
    assert!(ranks.iter().all(|rank| *rank < 1 << 53));
}
