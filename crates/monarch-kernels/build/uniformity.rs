//! Barriers and subgroup operations only where every invocation of a workgroup goes.
//!
//! Browsers refuse a shader that may break this; naga does not look. This check follows the rules
//! of WGSL's uniformity analysis, except that a variable which ever held a value that may differ
//! between invocations counts as different everywhere. So it refuses a little more than browsers.

use std::collections::HashMap;

use naga::{
    AddressSpace, Binding, Block, BuiltIn, Expression, Function, GatherMode, Handle, Module, Span,
    Statement, StorageAccess,
};

use crate::link::Linked;
use crate::trouble::Trouble;

pub(crate) fn check(linked: &Linked, module: &Module) -> Vec<Trouble> {
    let mut found = Found::default();
    for entry in &module.entry_points {
        let arguments = entry.function.arguments.iter().map(|argument| {
            matches!(
                argument.binding,
                Some(Binding::BuiltIn(
                    BuiltIn::WorkGroupId
                        | BuiltIn::NumWorkGroups
                        | BuiltIn::WorkGroupSize
                        | BuiltIn::SubgroupSize
                ))
            )
        });
        Walk::new(module, &entry.function, arguments.collect(), &mut found).function(true);
    }
    found.0.sort_unstable();
    found.0.dedup();
    let troubles = found.0.into_iter();
    troubles
        .map(|(offset, message)| linked.trouble(message.to_owned(), offset))
        .collect()
}

/// Offsets and messages.
#[derive(Default)]
struct Found(Vec<(usize, &'static str)>);

/// One function, called with arguments of known uniformity.
struct Walk<'a> {
    module: &'a Module,
    function: &'a Function,
    /// Whether each argument is the same in all invocations.
    arguments: Vec<bool>,
    /// Variables that hold, or once held, different values in different invocations.
    varied_locals: Vec<Handle<naga::LocalVariable>>,
    /// Results of calls.
    call_results: HashMap<Handle<Expression>, bool>,
    returns_uniform: bool,
    found: &'a mut Found,
}

/// How control flow leaves a block in some invocations but not in others.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Divergence {
    by_return: bool,
    /// By break or continue, which ends with the loop.
    in_loop: bool,
}

impl Divergence {
    fn merge(self, other: Self) -> Self {
        Self {
            by_return: self.by_return || other.by_return,
            in_loop: self.in_loop || other.in_loop,
        }
    }

    fn any(self) -> bool {
        self.by_return || self.in_loop
    }
}

impl<'a> Walk<'a> {
    fn new(
        module: &'a Module,
        function: &'a Function,
        arguments: Vec<bool>,
        found: &'a mut Found,
    ) -> Self {
        let varied_locals = Vec::new();
        let call_results = HashMap::new();
        let returns_uniform = true;
        Self {
            module,
            function,
            arguments,
            varied_locals,
            call_results,
            returns_uniform,
            found,
        }
    }

    /// Walks the body until no more variables turn out to vary; says whether the result is uniform.
    fn function(mut self, flow: bool) -> bool {
        for (handle, local) in self.function.local_variables.iter() {
            if local.init.is_some_and(|init| !self.is_uniform(init)) {
                self.varied_locals.push(handle);
            }
        }
        loop {
            let known = self.varied_locals.len();
            self.block(&self.function.body, flow);
            if self.varied_locals.len() == known {
                return self.returns_uniform;
            }
        }
    }

    /// `flow`: whether all invocations, or none, enter the block.
    fn block(&mut self, block: &Block, flow: bool) -> Divergence {
        let mut divergence = Divergence::default();
        for (statement, span) in block.span_iter() {
            let flow = flow && !divergence.any();
            divergence = divergence.merge(self.statement(statement, *span, flow));
        }
        divergence
    }

    fn statement(&mut self, statement: &Statement, span: Span, flow: bool) -> Divergence {
        match statement {
            Statement::Block(inner) => return self.block(inner, flow),
            Statement::If {
                condition,
                accept,
                reject,
            } => {
                let flow = flow && self.is_uniform(*condition);
                return self.block(accept, flow).merge(self.block(reject, flow));
            }
            Statement::Switch { selector, cases } => {
                let flow = flow && self.is_uniform(*selector);
                let inner = cases.iter().fold(Divergence::default(), |sum, case| {
                    sum.merge(self.block(&case.body, flow))
                });
                return inner;
            }
            Statement::Loop {
                body,
                continuing,
                break_if,
            } => {
                return self.iterations(body, continuing, *break_if, flow);
            }
            Statement::Break | Statement::Continue => {
                return Divergence {
                    by_return: false,
                    in_loop: !flow,
                };
            }
            Statement::Return { value } => {
                if !flow || value.is_some_and(|value| !self.is_uniform(value)) {
                    self.returns_uniform = false;
                }
                return Divergence {
                    by_return: !flow,
                    in_loop: false,
                };
            }
            Statement::Store { pointer, value }
                if !(flow && self.is_uniform(*value) && self.is_index_uniform(*pointer)) =>
            {
                self.vary(*pointer);
            }
            Statement::Call {
                function,
                arguments,
                result,
            } => {
                let callee = &self.module.functions[*function];
                let uniform = arguments.iter().map(|&argument| self.is_uniform(argument));
                let uniform = uniform.collect();
                let returns_uniform =
                    Walk::new(self.module, callee, uniform, self.found).function(flow);
                // A callee may write through a pointer: what it writes is not followed.
                for &argument in arguments {
                    self.vary(argument);
                }
                if let Some(result) = result {
                    self.call_results.insert(*result, returns_uniform);
                }
            }
            Statement::ControlBarrier(_) | Statement::WorkGroupUniformLoad { .. } => {
                self.require(flow, span, "a barrier that some invocations may not reach");
            }
            Statement::SubgroupGather { mode, .. } => {
                self.require(flow, span, NOT_REACHED);
                if let GatherMode::ShuffleDown(by)
                | GatherMode::ShuffleUp(by)
                | GatherMode::ShuffleXor(by) = mode
                {
                    let message = "a shuffle by a distance that differs between invocations";
                    self.require(self.is_uniform(*by), span, message);
                }
            }
            Statement::SubgroupBallot { .. } | Statement::SubgroupCollectiveOperation { .. } => {
                self.require(flow, span, NOT_REACHED);
            }
            _ => {}
        }
        Divergence::default()
    }

    fn iterations(
        &mut self,
        body: &Block,
        continuing: &Block,
        break_if: Option<Handle<Expression>>,
        flow: bool,
    ) -> Divergence {
        // Who leaves the loop in one iteration is missing in the next, so the answer for the
        // whole body is needed before its operations can be judged.
        let reported = self.found.0.len();
        let mut inner = self.block(body, flow).merge(self.block(continuing, flow));
        inner.in_loop |= break_if.is_some_and(|condition| !self.is_uniform(condition));
        if flow && inner.any() {
            self.found.0.truncate(reported);
            inner = inner
                .merge(self.block(body, false))
                .merge(self.block(continuing, false));
        }
        Divergence {
            by_return: inner.by_return,
            in_loop: false,
        }
    }

    fn require(&mut self, holds: bool, span: Span, message: &'static str) {
        if !holds {
            self.found
                .0
                .push((span.to_range().map_or(0, |range| range.start), message));
        }
    }

    /// The variable behind `pointer` now differs between invocations.
    fn vary(&mut self, pointer: Handle<Expression>) {
        match self.function.expressions[pointer] {
            Expression::LocalVariable(local) if !self.varied_locals.contains(&local) => {
                self.varied_locals.push(local);
            }
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                self.vary(base);
            }
            _ => {}
        }
    }

    /// Whether all invocations store to the same place.
    fn is_index_uniform(&self, pointer: Handle<Expression>) -> bool {
        match self.function.expressions[pointer] {
            Expression::Access { base, index } => {
                self.is_uniform(index) && self.is_index_uniform(base)
            }
            Expression::AccessIndex { base, .. } => self.is_index_uniform(base),
            _ => true,
        }
    }

    /// Whether the value, or what the pointer points at, is the same in all invocations.
    fn is_uniform(&self, handle: Handle<Expression>) -> bool {
        let all = |handles: &[Handle<Expression>]| handles.iter().all(|&h| self.is_uniform(h));
        match self.function.expressions[handle] {
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::Override(_)
            | Expression::ZeroValue(_)
            | Expression::ArrayLength(_)
            | Expression::WorkGroupUniformLoadResult { .. } => true,
            Expression::FunctionArgument(index) => self.arguments[index as usize],
            Expression::GlobalVariable(variable) => {
                match self.module.global_variables[variable].space {
                    AddressSpace::Storage { access } => !access.contains(StorageAccess::STORE),
                    AddressSpace::Uniform | AddressSpace::Immediate => true,
                    _ => false,
                }
            }
            Expression::LocalVariable(local) => !self.varied_locals.contains(&local),
            Expression::CallResult(_) => self.call_results.get(&handle).copied().unwrap_or(true),
            Expression::Load { pointer } => all(&[pointer]),
            Expression::Compose { ref components, .. } => all(components),
            Expression::Access { base, index } => all(&[base, index]),
            Expression::AccessIndex { base, .. } => all(&[base]),
            Expression::Splat { value, .. } => all(&[value]),
            Expression::Swizzle { vector, .. } => all(&[vector]),
            Expression::Unary { expr, .. } | Expression::As { expr, .. } => all(&[expr]),
            Expression::Binary { left, right, .. } => all(&[left, right]),
            Expression::Select {
                condition,
                accept,
                reject,
            } => all(&[condition, accept, reject]),
            Expression::Relational { argument, .. } => all(&[argument]),
            Expression::Math {
                arg,
                arg1,
                arg2,
                arg3,
                ..
            } => all(&[Some(arg), arg1, arg2, arg3]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()),
            // Results of atomics and subgroup operations, and whatever a kernel has no use for.
            _ => false,
        }
    }
}

const NOT_REACHED: &str = "a subgroup operation that some invocations may not reach";
