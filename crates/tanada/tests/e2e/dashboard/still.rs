//! Nothing moves on a page whose reader asked for no motion, and what draws does not do it frame by frame.

use super::{DESK, DRAWN, PAGES, check, page, start, while_busy};
use testkit::browser::{Opened, Screen, browser};

/// Counts what begins to move, and what scripts draw frame by frame.
const WATCH: &str = "window.moved = []; window.most = 0; window.frames = 0; window.drawn = 0; \
    for (const kind of ['transitionrun', 'animationstart']) \
    document.addEventListener(kind, event => moved.push(`${kind} ${event.target.outerHTML.slice(0, 80)}`), true); \
    const frame = requestAnimationFrame; window.requestAnimationFrame = done => { frames += 1; return frame(done); }; \
    new MutationObserver(() => { drawn += 1; most = Math.max(most, document.getAnimations().length); }) \
    .observe(document.querySelector('main'), {subtree: true, childList: true, attributes: true, characterData: true}); 1";

/// Elements whose style would let them move.
const MOVABLE: &str = "[...document.querySelectorAll('*')].filter(it => { const style = getComputedStyle(it); \
    return style.transitionDuration.split(', ').some(it => it !== '0s') || style.animationName !== 'none' || \
    style.scrollBehavior !== 'auto'; }).map(it => it.outerHTML.slice(0, 80))";

/// Moves the focus to the link above all, and away from it; moves the pointer over what looks different beneath it.
fn touch(opened: &mut Opened<'_>, has_still: bool) {
    let is_still = |opened: &mut Opened<'_>, what: &str| {
        if has_still {
            let moving = opened.value("document.getAnimations().length");
            assert_eq!(moving, 0, "{what}");
        }
    };
    opened.press("Tab");
    assert_eq!(opened.text("document.activeElement.id"), "skip");
    is_still(opened, "focus");
    opened.press("Tab");
    is_still(opened, "and away");
    for over in ["#pages a", "#who button", "main tbody tr", "main .plot"] {
        if opened.value(&format!("!!document.querySelector({over:?})")) == true {
            opened.hover(over, 0.5, 0.5);
            is_still(opened, over);
        }
    }
}

#[test]
fn nothing_moves_where_no_motion_is_asked_for_and_no_drawing_is_animated() {
    let Some(mut browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let daemon = start(dir.path());
    let still = Screen {
        still: true,
        ..DESK
    };
    while_busy(dir.path(), || {
        for path in PAGES {
            let mut opened = page(&mut browser, &daemon, path, still);
            opened.value(WATCH);
            let movable = opened.value(MOVABLE);
            assert_eq!(movable, serde_json::json!([]), "{path}");
            touch(&mut opened, true);
            assert_eq!(opened.value("moved"), serde_json::json!([]), "{path}");
            check(&mut opened, &daemon, path);
        }
        // Curves that get longer each second are drawn at once.
        let mut opened = page(&mut browser, &daemon, "", still);
        opened.value(WATCH);
        let line = "document.querySelector('.chart .plot .line').getAttribute('d')";
        for _ in 0..3 {
            let before = opened.text(line);
            let is_longer = format!("{line} !== {before:?} && {line}.includes('L')");
            assert!(opened.until(&is_longer), "{before}");
        }
        opened.hover(".chart .plot", 0.3, 0.5);
        assert!(opened.until("document.querySelector('.readout:not([hidden])')"));
        assert_eq!(
            opened.value("[drawn >= 3, most, frames, moved.length]"),
            serde_json::json!([true, 0, 0, 0])
        );
        // With motion allowed the same looks find some: they would see it.
        let mut opened = page(&mut browser, &daemon, "", DESK);
        opened.value(WATCH);
        let movable = opened.value(MOVABLE).to_string();
        assert!(movable.contains("skip"), "{movable}");
        touch(&mut opened, false);
        assert!(
            opened.until("moved.some(it => it.startsWith('transitionrun') && it.includes('skip'))"),
            "{}",
            opened.value("moved")
        );
        assert!(opened.until(DRAWN));
    });
    assert_eq!(daemon.stop().0, Some(0));
}
