//! Does a report look and work as it should in a real browser, on a desk and on a phone?
//!
//! `TANADA_SCREENSHOTS=DIR` keeps the pictures there, for people to look at.

use report::{
    Axis, Bars, Cell, Chart, Code, Facts, HeatMap, Note, Page, Repeat, Section, Series, Table, Unit,
};
use testkit::browser::{Browser, DESK, Opened, PHONE, Screen, browser};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// A number from 0 to 1 that looks like chance and is the same every time.
fn noise(n: u64) -> f64 {
    let mixed = (n ^ (n >> 7)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

/// A page with every kind of block, filled as a real comparison would fill it.
fn page() -> Page {
    let policies = [
        "lru",
        "fifo",
        "clock",
        "sieve",
        "s3-fifo",
        "arc",
        "w-tinylfu",
        "belady",
    ];
    let mut table = Table::new(
        "Five policies & one <bound>",
        [
            "policy",
            "size",
            "miss ratio",
            "byte miss ratio",
            "promotions",
            "flash written",
            "requests/s",
        ],
    );
    let mut curves = Chart::new(
        "Miss-ratio curves",
        Axis::new("cache size", Unit::Bytes).log(),
        Axis::new("miss ratio", Unit::Share).range(0.0, 1.0),
    )
    .about("Share of requests that went to the slow device. SHARDS sampling at 1 %.")
    .mark(24.0 * GIB, "configured: 24 GiB");
    for (n, policy) in policies.into_iter().enumerate() {
        let weight = 1.0 - n as f64 * 0.06;
        let curve = (0..33).map(|step| {
            let size = f64::from(1 << 28) * 2.0_f64.powf(f64::from(step) / 3.0);
            let ratio = weight / (1.0 + (size / (6.0 * GIB)).powf(0.7));
            (size, ratio.max(0.04))
        });
        curves = curves.series(Series::new(policy, curve));
        let miss = Cell::of(0.431 - 0.02 * n as f64, &Unit::Share);
        table = table.row([
            Cell::from(policy),
            Cell::of(24.0 * GIB, &Unit::Bytes),
            if n == 7 { miss.best() } else { miss },
            Cell::of(0.52 - 0.015 * n as f64, &Unit::Share),
            Cell::from(1_234_567 - 45_678 * n as u64),
            if n == 7 {
                Cell::none()
            } else {
                Cell::of((80.0 - n as f64) * GIB, &Unit::Bytes)
            },
            Cell::of(2.4e7 / (n + 1) as f64, &Unit::PerSecond),
        ]);
    }

    let cdf = |middle: f64, tail: f64| {
        (0..400).map(move |n| {
            let share = f64::from(n) / 399.0;
            (
                middle * (share * 4.0 - 2.0).exp() + tail * share.powi(18),
                share,
            )
        })
    };
    let responses = Chart::new(
        "Response time",
        Axis::new("response time", Unit::Seconds).log(),
        Axis::new("share of requests", Unit::Share).range(0.0, 1.0),
    )
    .series(Series::new("reads", cdf(110e-6, 0.02)).steps())
    .series(Series::new("writes", cdf(45e-6, 0.2)).steps());

    let day = (0..20_000_u64).map(|n| {
        let hour = n as f64 / 20_000.0 * 24.0;
        let swing = 1.0 + (hour / 24.0 * std::f64::consts::TAU).sin();
        let burst = if n % 1777 == 0 { 9000.0 } else { 0.0 };
        let lost = (12_000..12_400).contains(&n);
        let value = 900.0 * swing + 500.0 * noise(n) + burst;
        (hour * 3600.0, if lost { f64::NAN } else { value })
    });
    let rate = Chart::new(
        "Requests over time",
        Axis::new("time since the first request", Unit::Seconds),
        Axis::new("requests", Unit::PerSecond),
    )
    .series(Series::new("all requests", day))
    .wide();
    let power = Chart::new(
        "Power",
        Axis::new("time since the first request", Unit::Seconds),
        Axis::new("power", Unit::Watts),
    )
    .series(Series::new(
        "hdd",
        (0..200).map(|n| (f64::from(n) * 432.0, 5.0 + noise(n as u64))),
    ))
    .series(Series::new(
        "ssd",
        (0..200).map(|n| (f64::from(n) * 432.0, 1.2 + noise(n as u64 * 3))),
    ));

    let heat = (0..480_u64)
        .map(|x| {
            (0..160_u64)
                .map(|y| {
                    let band = (-((y as f64 - 40.0 - x as f64 / 12.0) / 9.0).powi(2)).exp();
                    let spot = if (90..110).contains(&y) && x % 120 < 50 {
                        0.4
                    } else {
                        0.0
                    };
                    ((band + spot) * 4000.0 * noise(x * 160 + y)).floor()
                })
                .collect()
        })
        .collect();
    let resident = (0..480_u64)
        .map(|x| {
            (0..160_u64)
                .map(|y| f64::from(u8::from((y as f64 - 38.0 - x as f64 / 12.0).abs() < 8.0)))
                .collect()
        })
        .collect();
    let map = HeatMap::new(
        "Where the requests go",
        "requests",
        (
            Axis::new("time since the first request", Unit::Seconds),
            0.0,
            480.0 * 60.0,
        ),
        (Axis::new("address", Unit::Bytes), 0.0, 160.0 * GIB),
        heat,
    )
    .about("Each cell is a region of 2 GiB over two minutes.")
    .resident("on the SSD", resident);

    let bars = Bars::new("read: seconds (s)")
        .bar("tanada-lru", 1.5, 1.2, 1.9)
        .bar("dmssd", 2.5, 2.4, 2.6)
        .bar("hdd", 12.0, 12.0, 12.0);

    Page::new("Comparison of eight policies on w105.oracleGeneral.zst")
        .lead("S3-FIFO misses 8 % less than LRU at 24 GiB; the bound leaves 6 % more.")
        .facts(
            Facts::new()
                .fact("requests", "34.56 M")
                .fact("span", "7 d")
                .fact("reads", "62.3 %")
                .fact("footprint", "412 GiB")
                .fact("best policy", "s3-fifo"),
        )
        .section(
            Section::new("Policies")
                .text("Every policy saw the same requests; the devices are modelled.")
                .put(table)
                .put(curves.wide())
                .put(Note::warning("the first tenth of the trace warms the cache and is counted.")),
        )
        .section(Section::new("Time").put(responses).put(power).put(rate))
        .section(Section::new("Heat").put(map))
        .section(
            Section::new("Repeat")
                .put(bars)
                .put(
                    Repeat::new(
                        "tanada sim cache w105.oracleGeneral.zst --policy lru,fifo,clock,sieve,s3-fifo,arc,w-tinylfu \
                         --size 24GiB --unit 4KiB --seed 17 --html compare.html",
                    )
                    .seed(17)
                    .input("w105.oracleGeneral.zst", "123,456,789 bytes, crc 1a2b3c4d")
                    .configuration("stack.toml", "[[hybrid]]\nname = \"vol0\"\npolicy = \"s3-fifo\"\n"),
                )
                .put(Code::new("A remark", "<script>throw 'text is not markup'</script> & so on"))
                .put(Note::new("Devices modelled; see docs/models.md.")),
        )
}

/// What every page must keep on every screen.
fn check(opened: &mut Opened<'_>) {
    let complaints = opened.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let reached_for = opened.reached_for();
    assert!(reached_for.is_empty(), "{reached_for:#?}");
    let (page, screen) = opened.widths();
    assert!(
        page <= screen,
        "the page is {page} wide on a screen of {screen}"
    );
}

fn keep(name: &str, picture: &[u8]) {
    if let Some(directory) = std::env::var_os("TANADA_SCREENSHOTS") {
        let file = std::path::Path::new(&directory).join(format!("{name}.png"));
        std::fs::write(file, picture).unwrap();
    }
}

/// The picture has the width of the screen and is more than paper.
fn check_picture(picture: &[u8], width: u32) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(picture))
        .read_info()
        .unwrap();
    assert_eq!(reader.info().width, width);
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut pixels).unwrap();
    let of_each = frame.color_type.samples();
    let mut colours: Vec<&[u8]> = pixels.chunks_exact(of_each).collect();
    colours.sort_unstable();
    colours.dedup();
    assert!(colours.len() > 100, "{} colours", colours.len());
}

const SCREENS: [(&str, Screen); 4] = [
    ("desk", DESK),
    ("desk-dark", Screen { dark: true, ..DESK }),
    ("phone", PHONE),
    (
        "phone-dark",
        Screen {
            dark: true,
            ..PHONE
        },
    ),
];

#[test]
fn a_page_of_every_block_fits_a_desk_and_a_phone_by_day_and_by_night() {
    let Some(mut browser) = browser() else { return };
    let html = page().html();
    for (name, screen) in SCREENS {
        let mut opened = browser.open(&html, screen);
        check(&mut opened);
        let paper = opened.text("getComputedStyle(document.body).backgroundColor");
        let light = "rgb(255, 255, 255)";
        assert_eq!(paper == light, !screen.dark, "{paper}");
        let picture = opened.screenshot();
        keep(name, &picture);
        check_picture(&picture, screen.width * if screen.phone { 2 } else { 1 });
    }
}

#[test]
fn values_are_read_off_curves_switched_tables_sorted() {
    let Some(mut browser) = browser() else { return };
    let mut opened = browser.open(&page().html(), DESK);
    let readout = |figure: &str| format!("document.querySelector('{figure} .readout').innerText");

    opened.hover("figure.chart .plot", 0.6, 0.5);
    let shown = opened.text(&readout("figure.chart"));
    assert!(
        shown.contains("GiB") && shown.contains("s3-fifo") && shown.contains(" %"),
        "{shown}"
    );
    keep("hover", &opened.screenshot());

    // A curve that is off is not drawn and not read.
    opened.click(".legend li:first-child button");
    let off = "document.querySelectorAll('figure.chart .line.off').length";
    assert!(opened.number(off) >= 1.0);
    opened.hover("figure.chart .plot", 0.4, 0.5);
    let shown = opened.text(&readout("figure.chart"));
    assert!(!shown.contains("lru") && shown.contains("fifo"), "{shown}");

    let ticks = "document.querySelector('figure.chart .xs').innerText";
    let before = opened.text(ticks);
    let path = "document.querySelector('figure.chart .plot .line').getAttribute('d')";
    let drawn = opened.text(path);
    // The same scale again draws what was drawn here, to the last tenth of a thousandth.
    opened.click("figure.chart .switch button[aria-pressed=true]");
    assert_eq!(opened.text(ticks), before);
    let redrawn = opened.text(path);
    let numbers = |path: &str| -> Vec<f64> {
        path.split(['M', 'L', ' '])
            .filter_map(|number| number.parse().ok())
            .collect()
    };
    let (ours, theirs) = (numbers(&drawn), numbers(&redrawn));
    assert_eq!((ours.len(), theirs.len()), (66, 66));
    let differ = ours
        .iter()
        .zip(&theirs)
        .filter(|(a, b)| (**a - **b).abs() > 0.11)
        .count();
    assert_eq!(differ, 0, "{drawn} {redrawn}");
    opened.click("figure.chart .switch button[aria-pressed=false]");
    assert_ne!(opened.text(ticks), before);
    assert_ne!(opened.text(path), drawn);

    opened.key("figure.chart .plot", "End");
    let shown = opened.text(&readout("figure.chart"));
    assert!(shown.contains("406.4 GiB"), "{shown}");
    opened.key("figure.chart .plot", "Escape");
    assert_eq!(
        opened.value("document.querySelector('figure.chart .readout').hidden"),
        true
    );

    opened.hover("figure.heat .plot", 0.5, 0.7);
    let shown = opened.text(&readout("figure.heat"));
    assert!(
        shown.contains("requests") && shown.contains("on the SSD") && shown.contains("GiB .."),
        "{shown}"
    );
    keep("hover-heat", &opened.screenshot());

    let first = "document.querySelector('table.sortable tbody td').innerText";
    assert_eq!(opened.text(first), "lru");
    opened.click("table.sortable th:nth-child(5) button");
    assert_eq!(opened.text(first), "lru", "most promotions first");
    opened.click("table.sortable th:nth-child(5) button");
    assert_eq!(opened.text(first), "belady", "then fewest");
    // The one without a figure stays last both ways.
    let last = "document.querySelector('table.sortable tbody tr:last-child td').innerText";
    for _ in 0..2 {
        opened.click("table.sortable th:nth-child(6) button");
        assert_eq!(opened.text(last), "belady");
    }
    opened.click("table.sortable th:nth-child(1) button");
    assert_eq!(opened.text(first), "arc");
    opened.click("details.code .copy");
    check(&mut opened);
}

#[test]
fn everything_is_there_without_scripts() {
    let Some(mut browser) = browser() else { return };
    for (name, screen) in SCREENS {
        let screen = Screen {
            scripts: false,
            ..screen
        };
        let mut opened = browser.open(&page().html(), screen);
        check(&mut opened);
        let picture = opened.screenshot();
        keep(&format!("{name}-no-script"), &picture);
        check_picture(&picture, screen.width * if screen.phone { 2 } else { 1 });
    }
}

/// Does `check` fail on this page?
fn is_refused(browser: &mut Browser, html: &str, screen: Screen) -> bool {
    let mut opened = browser.open(html, screen);
    let look = std::panic::AssertUnwindSafe(|| check(&mut opened));
    std::panic::catch_unwind(look).is_err()
}

#[test]
fn a_script_error_a_page_too_wide_and_a_page_that_reaches_out_are_caught() {
    let Some(mut browser) = browser() else { return };
    let good = page().html();
    let with = |planted: &str| {
        let page = good.replace("</main>", &format!("{planted}</main>"));
        assert_ne!(page, good);
        page
    };
    assert!(!is_refused(&mut browser, &good, PHONE));
    let broken = [
        "<script>undefined_function()</script>",
        "<script>console.error('wrong')</script>",
        "<div style=\"width:600px\">wide</div>",
        "<img src=\"http://example.invalid/a.png\" alt=\"\">",
        "<link rel=\"stylesheet\" href=\"https://example.invalid/a.css\">",
        "<script>fetch('https://example.invalid/').catch(() => 0)</script>",
    ];
    for planted in broken {
        assert!(is_refused(&mut browser, &with(planted), PHONE), "{planted}");
    }
}

#[test]
fn no_page_names_anything_outside_itself() {
    let html = page().html();
    for attribute in [" src=\"", " srcset=\"", " href=\"", "url("] {
        for found in html.split(attribute).skip(1) {
            let start: String = found.chars().take(30).collect();
            assert!(
                start.starts_with("data:") || start.starts_with('#'),
                "{attribute}{start}"
            );
        }
    }
    for outside in [
        "http:", "https:", "@import", "<link", "<iframe", "fetch(", "XMLHttp", "import(",
    ] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.len() < 700_000, "{} bytes", html.len());
}
