//! What naga accepts but a browser, or a reader, does not.

use naga::Module;
use naga::valid::ModuleInfo;

use crate::link::Linked;
use crate::trouble::Trouble;

pub(crate) fn lint(_linked: &Linked, _module: &Module, _info: &ModuleInfo) -> Vec<Trouble> {
    Vec::new()
}
