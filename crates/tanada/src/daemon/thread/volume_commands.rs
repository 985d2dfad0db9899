//! Commands about one hybrid, begun or answered on its data thread.

use std::rc::Rc;

use super::DataThread;
use super::command::{SettingsCommand, VolumeCommand};
use super::hybrid::OpenVolume;
use super::live_settings::LiveSettings;

/// What a second command is told of the one under way.
const CHANGE: &str = "a change of settings";

/// Answers one, or begins what it asks for.
pub(super) fn answer(data_thread: &Rc<DataThread>, command: VolumeCommand) {
    // The sender may have gone away; then no task misses the answer.
    match command {
        VolumeCommand::Detach { volume, reply } => {
            let detach = async |volume: &OpenVolume| volume.detach().await;
            data_thread.command("a detach", volume, reply, detach);
        }
        VolumeCommand::Attach {
            volume,
            attach,
            reply,
        } => {
            let (thread, name) = (Rc::clone(data_thread), volume.clone());
            data_thread.command("an attach", volume, reply, async move |volume| {
                let find = |wanted: &str| thread.spare(wanted, &name);
                volume.attach(find, attach).await
            });
        }
        VolumeCommand::Advice { volume, reply } => {
            data_thread.ask(&volume, reply, OpenVolume::advice)
        }
        VolumeCommand::Heat { volume, ask, reply } => {
            data_thread.ask(&volume, reply, |it| it.heat(&ask))
        }
        VolumeCommand::Moves { volume, ask, reply } => {
            data_thread.ask(&volume, reply, |it| it.moves(&ask))
        }
        VolumeCommand::TierState {
            volume,
            asked,
            reply,
        } => data_thread.ask(&volume, reply, |it| it.tier_state(asked)),
        VolumeCommand::Settings(command) => answer_settings(data_thread, command),
    }
}

/// One about settings.
fn answer_settings(data_thread: &Rc<DataThread>, command: SettingsCommand) {
    match command {
        SettingsCommand::Change {
            volume,
            change,
            lasts,
            who,
            reply,
        } => data_thread.command(CHANGE, volume, reply, async move |volume| {
            LiveSettings(volume).change(*change, lasts, &who).await
        }),
        SettingsCommand::Saved {
            volume,
            change,
            reply,
        } => data_thread.ask(&volume, reply, |it| {
            LiveSettings(it).saved(&change);
            Ok(())
        }),
        SettingsCommand::Reset {
            volume,
            keys,
            who,
            reply,
        } => data_thread.command(CHANGE, volume, reply, async move |volume| {
            LiveSettings(volume).reset(&keys, &who).await
        }),
        SettingsCommand::Configure {
            volume,
            config,
            is_check,
            reply,
        } => data_thread.command(CHANGE, volume, reply, async move |volume| {
            LiveSettings(volume).configure(&config, is_check).await
        }),
        SettingsCommand::Overrides { volume, reply } => {
            data_thread.ask(&volume, reply, |it| Ok(LiveSettings(it).overrides()));
        }
    }
}
