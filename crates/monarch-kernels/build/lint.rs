//! What naga accepts but a browser, a driver or a reader does not.

use naga::valid::{FunctionInfo, GlobalUse, ModuleInfo};
use naga::{
    AddressSpace, Block, Expression, Function, Handle, Module, Statement, StorageAccess,
    SubgroupOperation, TypeInner,
};

use crate::link::Linked;
use crate::trouble::Trouble;
use crate::uniformity;

pub(crate) fn lint(linked: &Linked, module: &Module, info: &ModuleInfo) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let [entry] = &module.entry_points[..] else {
        let message = format!("{} entry points, expected one", module.entry_points.len());
        return vec![linked.trouble(message, 0)];
    };
    if entry.name != "main" {
        let message = format!("the entry point is called {}, not main", entry.name);
        troubles.push(linked.trouble(message, 0));
    }
    missing_enable(linked, &mut troubles);
    unused_access(linked, module, info.get_entry_point(0), &mut troubles);
    let functions = module
        .functions
        .iter()
        .map(|(handle, function)| (function, &info[handle]));
    for (function, function_info) in functions.chain([(&entry.function, info.get_entry_point(0))]) {
        dynamic_array_index(linked, module, function, function_info, &mut troubles);
        nested_min_max(linked, module, function, &mut troubles);
    }
    troubles.extend(uniformity::check(linked, module));
    troubles
}

/// Browsers require `enable subgroups;`, which naga does not know.
fn missing_enable(linked: &Linked, troubles: &mut Vec<Trouble>) {
    let is_enabled = linked.text != linked.naga_text();
    let used_at = linked.naga_text().find("subgroup");
    if linked.conditions.web
        && !is_enabled
        && let Some(offset) = used_at
    {
        let message = "subgroups without `@if(subgroups && web) enable subgroups;`".to_owned();
        troubles.push(linked.trouble(message, offset));
    }
}

/// A writable binding makes every pair of dispatches that share it wait for each other, so one
/// that is never written must be declared read-only; one that is never used must go.
fn unused_access(
    linked: &Linked,
    module: &Module,
    entry: &FunctionInfo,
    troubles: &mut Vec<Trouble>,
) {
    for (handle, variable) in module.global_variables.iter() {
        if variable.binding.is_none() {
            continue;
        }
        let name = variable.name.as_deref().unwrap_or_default();
        let uses = entry[handle];
        let is_writable = matches!(
            variable.space,
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE)
        );
        let message = if uses.is_empty() {
            format!("binding {name} is never used")
        } else if is_writable && !uses.intersects(GlobalUse::WRITE | GlobalUse::ATOMIC) {
            format!("binding {name} is read_write but never written")
        } else {
            continue;
        };
        let span = module.global_variables.get_span(handle).to_range();
        troubles.push(linked.trouble(message, span.map_or(0, |range| range.start)));
    }
}

/// A local array with an index that is not constant lives in memory instead of registers: a
/// matvec that held its activations in one ran five times slower.
fn dynamic_array_index(
    linked: &Linked,
    module: &Module,
    function: &Function,
    info: &FunctionInfo,
    troubles: &mut Vec<Trouble>,
) {
    for (handle, expression) in function.expressions.iter() {
        let Expression::Access { base, .. } = *expression else {
            continue;
        };
        let is_local_array = match *info[base].ty.inner_with(&module.types) {
            TypeInner::Array { .. } => true,
            TypeInner::Pointer {
                base,
                space: AddressSpace::Function,
            } => {
                matches!(module.types[base].inner, TypeInner::Array { .. })
            }
            _ => false,
        };
        if is_local_array {
            let span = function.expressions.get_span(handle).to_range();
            troubles.push(linked.trouble(
                "a function-scope array is indexed dynamically".to_owned(),
                span.map_or(0, |range| range.start),
            ));
        }
    }
}

/// `subgroupMin` or `subgroupMax` of the result of another one crashes some drivers.
fn nested_min_max(
    linked: &Linked,
    module: &Module,
    function: &Function,
    troubles: &mut Vec<Trouble>,
) {
    let mut extrema = Extrema::new(module, function);
    extrema.settle();
    for offset in extrema.nested {
        let message = "subgroup min or max of the result of another one".to_owned();
        troubles.push(linked.trouble(message, offset));
    }
}

/// Which values of a function are results of `subgroupMin` or `subgroupMax`.
struct Extrema<'a> {
    module: &'a Module,
    function: &'a Function,
    results: Vec<Handle<Expression>>,
    locals: Vec<Handle<naga::LocalVariable>>,
    returned: bool,
    /// Offsets of operations on such values.
    nested: Vec<usize>,
}

impl<'a> Extrema<'a> {
    fn new(module: &'a Module, function: &'a Function) -> Self {
        Self {
            module,
            function,
            results: Vec::new(),
            locals: Vec::new(),
            returned: false,
            nested: Vec::new(),
        }
    }

    /// Follows values through variables until nothing new is found.
    fn settle(&mut self) {
        loop {
            let known = (self.results.len(), self.locals.len());
            self.nested.clear();
            self.block(&self.function.body);
            if (self.results.len(), self.locals.len()) == known {
                return;
            }
        }
    }

    fn block(&mut self, block: &Block) {
        for (statement, span) in block.span_iter() {
            match statement {
                Statement::Block(inner) => self.block(inner),
                Statement::If { accept, reject, .. } => {
                    self.block(accept);
                    self.block(reject);
                }
                Statement::Switch { cases, .. } => {
                    for case in cases {
                        self.block(&case.body);
                    }
                }
                Statement::Loop {
                    body, continuing, ..
                } => {
                    self.block(body);
                    self.block(continuing);
                }
                Statement::Return { value: Some(value) } => {
                    self.returned |= self.is_extremum(*value);
                }
                Statement::Store { pointer, value } if self.is_extremum(*value) => {
                    if let Some(local) = self.root_local(*pointer)
                        && !self.locals.contains(&local)
                    {
                        self.locals.push(local);
                    }
                }
                Statement::Call {
                    function,
                    result: Some(result),
                    ..
                } => {
                    let mut callee = Self::new(self.module, &self.module.functions[*function]);
                    callee.settle();
                    if callee.returned {
                        self.add_result(*result);
                    }
                }
                Statement::SubgroupCollectiveOperation {
                    op: SubgroupOperation::Min | SubgroupOperation::Max,
                    argument,
                    result,
                    ..
                } => {
                    if self.is_extremum(*argument) {
                        self.nested
                            .push(span.to_range().map_or(0, |range| range.start));
                    }
                    self.add_result(*result);
                }
                _ => {}
            }
        }
    }

    fn add_result(&mut self, result: Handle<Expression>) {
        if !self.results.contains(&result) {
            self.results.push(result);
        }
    }

    /// Whether the value carries an extremum on; a comparison with one does not.
    fn is_extremum(&self, handle: Handle<Expression>) -> bool {
        let any = |handles: &[Handle<Expression>]| handles.iter().any(|&h| self.is_extremum(h));
        match self.function.expressions[handle] {
            Expression::CallResult(_) | Expression::SubgroupOperationResult { .. } => {
                self.results.contains(&handle)
            }
            Expression::Load { pointer } => self
                .root_local(pointer)
                .is_some_and(|local| self.locals.contains(&local)),
            Expression::Compose { ref components, .. } => any(components),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => any(&[base]),
            Expression::Splat { value, .. } => any(&[value]),
            Expression::Swizzle { vector, .. } => any(&[vector]),
            Expression::Unary { expr, .. } | Expression::As { expr, .. } => any(&[expr]),
            Expression::Binary { op, left, right } => {
                use naga::BinaryOperator as Op;
                let compares = matches!(
                    op,
                    Op::Equal
                        | Op::NotEqual
                        | Op::Less
                        | Op::LessEqual
                        | Op::Greater
                        | Op::GreaterEqual
                );
                !compares && any(&[left, right])
            }
            Expression::Select { accept, reject, .. } => any(&[accept, reject]),
            Expression::Math {
                arg,
                arg1,
                arg2,
                arg3,
                ..
            } => any(&[Some(arg), arg1, arg2, arg3]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()),
            _ => false,
        }
    }

    fn root_local(&self, pointer: Handle<Expression>) -> Option<Handle<naga::LocalVariable>> {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(local) => Some(local),
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.root_local(base)
            }
            _ => None,
        }
    }
}
