//! What the experiment is called.

use crate::experiment::Listing;

/// The experiment, for listings.
pub const LISTING: Listing = Listing {
    name: "tiering",
    paper: "AST",
    about: "hot regions on an SSD minute by minute: where requests go and how long they take, published and ours",
};
