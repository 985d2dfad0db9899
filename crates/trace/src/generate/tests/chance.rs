//! The draws against what theory says of them.

use super::super::chance::{Burst, Scatter, Strata, Zipf, exp, exponential, ln, normal, stream};

#[test]
fn logarithm_and_exponential_agree_with_the_systems_to_thirteen_digits() {
    let mut x = 1e-300;
    while x < 1e300 {
        let (ours, theirs) = (ln(x), f64::ln(x));
        assert!(
            (ours - theirs).abs() <= 1e-13 * theirs.abs().max(1.0),
            "ln {x}"
        );
        x *= 1.37;
    }
    let mut x = -700.0;
    while x < 700.0 {
        let (ours, theirs) = (exp(x), f64::exp(x));
        assert!((ours / theirs - 1.0).abs() < 1e-13, "exp {x}");
        x += 0.37;
    }
    assert_eq!((ln(1.0), exp(0.0)), (0.0, 1.0));
}

#[test]
fn draws_are_the_same_on_every_machine() {
    // To the bit: these figures were computed once and stand for all machines.
    let mut rng = stream(1, "the same everywhere");
    let zipf = Zipf::new(1 << 30, 0.99);
    let ranks: Vec<u64> = (0..6).map(|_| zipf.draw(&mut rng)).collect();
    let gaps: Vec<u64> = (0..4).map(|_| exponential(&mut rng, 1e9)).collect();
    let bits = [ln(3.0), exp(0.1), ln(1e-9), exp(-20.0)].map(f64::to_bits);
    assert_eq!(ranks, RANKS);
    assert_eq!(gaps, GAPS);
    assert_eq!(bits, BITS);
}

const RANKS: [u64; 6] = [21, 712, 75_677_492, 1, 887_377_169, 4_031];
const GAPS: [u64; 4] = [3_247_766_964, 2_304_016_556, 851_417_570, 166_073_080];
const BITS: [u64; 4] = [
    4_607_626_529_066_517_258,
    4_607_656_066_507_473_108,
    13_849_898_335_305_727_928,
    4_477_057_993_643_618_923,
];

#[test]
fn gaps_have_their_mean_and_bursts_theirs() {
    let mut rng = stream(1, "gaps");
    let n = 200_000;
    let sum: u64 = (0..n).map(|_| exponential(&mut rng, 1e6)).sum();
    // The spread of an exponential is its mean: five standard errors of 200,000 are 1.1 %.
    assert!((sum as f64 / n as f64 / 1e6 - 1.0).abs() < 0.012);
    for mean in [1.0, 2.5, 250.0] {
        let burst = Burst::new(mean);
        let sum: u64 = (0..n).map(|_| burst.draw(&mut rng)).sum();
        assert!((sum as f64 / n as f64 / mean - 1.0).abs() < 0.012, "{mean}");
    }
}

#[test]
fn normal_numbers_have_the_distribution_of_theory() {
    let mut rng = stream(1, "normal");
    let n = 300_000;
    let mut numbers: Vec<f64> = (0..n).map(|_| normal(&mut rng)).collect();
    numbers.sort_by(f64::total_cmp);
    // The normal distribution at these numbers; each within five standard deviations.
    let below = [
        (-3.0, 0.001_350),
        (-1.0, 0.158_655),
        (0.0, 0.5),
        (0.5, 0.691_462),
        (2.0, 0.977_250),
    ];
    for (z, p) in below {
        let got = numbers.partition_point(|number| *number < z) as f64 / f64::from(n);
        let spread = (p * (1.0 - p) / f64::from(n)).sqrt();
        assert!(
            (got - p).abs() < 5.0 * spread,
            "below {z}: {got}, expected {p}"
        );
    }
    // Nothing is cut off: of so many one in 30,000 lies beyond 4.
    assert!(numbers[0] < -4.0 && numbers[numbers.len() - 1] > 4.0);
}

#[test]
fn zipf_ranks_come_as_often_as_theory_says() {
    let (n, draws) = (1_000, 300_000);
    for theta in [0.0, 0.5, 0.99, 1.0, 1.3, 3.0] {
        let mut rng = stream(1, "ranks");
        let zipf = Zipf::new(n, theta);
        let mut counts = vec![0u64; n as usize];
        for _ in 0..draws {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let weights: Vec<f64> = (1..=n).map(|k| (k as f64).powf(-theta)).collect();
        let all: f64 = weights.iter().sum();
        // Ranks alone at the top, then wider and wider groups; each within five standard deviations.
        let mut from = 0;
        while from < n as usize {
            let to = (from + 1 + from / 2).min(n as usize);
            let p = weights[from..to].iter().sum::<f64>() / all;
            let (want, got) = (
                p * draws as f64,
                counts[from..to].iter().sum::<u64>() as f64,
            );
            let spread = (want * (1.0 - p)).sqrt().max(1.0);
            assert!(
                (got - want).abs() < 5.0 * spread,
                "theta {theta}, ranks {from}..{to}: {got}, expected {want:.0}"
            );
            from = to;
        }
    }
}

#[test]
fn a_single_rank_is_always_drawn() {
    let mut rng = stream(1, "one");
    let zipf = Zipf::new(1, 0.99);
    assert!((0..100).all(|_| zipf.draw(&mut rng) == 0));
}

#[test]
fn a_scatter_is_a_bijection_and_leaves_no_order() {
    for n in [1, 2, 3, 10, 1_000, 4_097] {
        let scatter = Scatter::new(n, 7);
        let mut places: Vec<u64> = (0..n).map(|i| scatter.place(i)).collect();
        let ascents = places.windows(2).filter(|pair| pair[0] < pair[1]).count();
        if n >= 1_000 {
            // Half of all neighbours ascend, give or take.
            assert!(
                (ascents as f64 / n as f64 - 0.5).abs() < 0.1,
                "{n}: {ascents}"
            );
        }
        places.sort_unstable();
        assert!(places.into_iter().eq(0..n), "{n}");
    }
}

#[test]
fn of_six_draws_in_a_row_one_lies_in_each_sixth() {
    let mut rng = stream(1, "strata");
    let mut strata = Strata::new(6);
    for _ in 0..20 {
        let mut six: Vec<usize> = (0..6).map(|_| strata.stratum(&mut rng)).collect();
        six.sort_unstable();
        assert_eq!(six, [0, 1, 2, 3, 4, 5]);
    }
}

#[test]
fn streams_of_other_names_and_seeds_are_unrelated() {
    let bits = |seed, name| stream(seed, name).bits();
    assert_eq!(bits(1, "a"), bits(1, "a"));
    assert_ne!(bits(1, "a"), bits(1, "b"));
    assert_ne!(bits(1, "a"), bits(2, "a"));
}
