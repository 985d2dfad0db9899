//! The program from outside: a real daemon over sockets, and commands that need none.

mod access;
mod account_ends;
mod accounts;
mod admin_tls;
mod advice;
mod caps;
mod certificates;
mod commands;
mod common;
mod daemon;
mod dashboard;
mod gates;
mod guides;
mod laboratory;
mod lifecycle;
mod metrics;
mod modes;
mod pairs;
mod queued;
mod recording;
mod schemas;
mod settings;
mod spellings;
mod store;
mod tier;
mod whose;
