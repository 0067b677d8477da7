//! Linked WGSL in, validated facts out: bindings, overrides.

use std::error::Error as _;

use naga::valid::{Capabilities, ValidationFlags, Validator};
use naga::{AddressSpace, Module, StorageAccess, TypeInner};

use crate::link::Linked;
use crate::lint;
use crate::trouble::Trouble;

/// What the host must know to bind and specialise a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reflected {
    /// In binding order: binding 0 first, all in group 0.
    pub(crate) bindings: Vec<Binding>,
    pub(crate) overrides: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) name: String,
    pub(crate) access: Access,
    /// Size of the fixed part, or of one element of an unsized array.
    pub(crate) min_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    ReadWrite,
}

pub(crate) fn reflect(linked: &Linked) -> Result<Reflected, Vec<Trouble>> {
    let text = linked.naga_text();
    let module = naga::front::wgsl::parse_str(&text).map_err(|error| {
        let offset = error.labels().next().and_then(|(span, _)| span.to_range());
        let notes = error.labels().map(|(_, note)| note).chain(error.notes());
        let message = notes.fold(error.message().to_owned(), |message, note| match note {
            "" => message,
            note => message + "; " + note,
        });
        vec![linked.trouble(message, offset.map_or(0, |range| range.start))]
    })?;
    // unpack2x16float is part of core WGSL.
    let mut allowed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    allowed.set(Capabilities::SHADER_FLOAT16, linked.conditions.f16);
    allowed.set(Capabilities::SUBGROUP, linked.conditions.subgroups);
    let info = Validator::new(ValidationFlags::all(), allowed)
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| {
            // The last span is the innermost: the expression rather than its function.
            let offset = error.spans().last().and_then(|(span, _)| span.to_range());
            let mut message = error.as_inner().to_string();
            let mut cause = error.as_inner().source();
            while let Some(inner) = cause {
                message = message + ": " + &inner.to_string();
                cause = inner.source();
            }
            vec![linked.trouble(message, offset.map_or(0, |range| range.start))]
        })?;
    let troubles = lint::lint(linked, &module, &info);
    if !troubles.is_empty() {
        return Err(troubles);
    }
    reflect_module(linked, &module)
}

fn reflect_module(linked: &Linked, module: &Module) -> Result<Reflected, Vec<Trouble>> {
    let mut troubles = Vec::new();
    let mut bindings = Vec::new();
    for (handle, variable) in module.global_variables.iter() {
        let Some(slot) = variable.binding else {
            continue;
        };
        let offset = module
            .global_variables
            .get_span(handle)
            .to_range()
            .map_or(0, |r| r.start);
        let name = variable.name.clone().unwrap_or_default();
        let access = match variable.space {
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => {
                Access::ReadWrite
            }
            AddressSpace::Storage { .. } => Access::Read,
            _ => {
                let message = format!("binding {name} is not a storage buffer");
                troubles.push(linked.trouble(message, offset));
                continue;
            }
        };
        if slot.group != 0 {
            let message = format!("binding {name} is in group {}, not 0", slot.group);
            troubles.push(linked.trouble(message, offset));
        }
        let min_bytes = match module.types[variable.ty].inner {
            TypeInner::Array {
                stride,
                size: naga::ArraySize::Dynamic,
                ..
            } => stride,
            ref inner => inner.size(module.to_ctx()),
        };
        bindings.push((
            slot.binding,
            Binding {
                name,
                access,
                min_bytes,
            },
            offset,
        ));
    }
    bindings.sort_by_key(|(slot, ..)| *slot);
    for (index, (slot, binding, offset)) in bindings.iter().enumerate() {
        if *slot as usize != index {
            let message = format!(
                "binding {} is number {slot}, expected {index}",
                binding.name
            );
            troubles.push(linked.trouble(message, *offset));
        }
    }
    if !troubles.is_empty() {
        return Err(troubles);
    }
    let mut overrides: Vec<String> = module
        .overrides
        .iter()
        .filter_map(|(_, o)| o.name.clone())
        .collect();
    overrides.sort();
    Ok(Reflected {
        bindings: bindings.into_iter().map(|(_, b, _)| b).collect(),
        overrides,
    })
}
