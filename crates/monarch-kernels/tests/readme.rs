//! The kernel index of `shaders/README.md` is the table that the build generates.

use std::fmt::Write as _;
use std::path::Path;

use monarch_kernels::{Access, KERNELS};

fn index() -> String {
    let mut index = String::from(
        "| kernel | what it computes | bindings (writable ones in bold) |\n| --- | --- | --- |\n",
    );
    for kernel in KERNELS {
        let bindings: Vec<String> = kernel
            .bindings
            .iter()
            .map(|binding| match binding.access {
                Access::Read => binding.name.to_owned(),
                Access::ReadWrite => format!("**{}**", binding.name),
            })
            .collect();
        writeln!(
            index,
            "| `{}` | {} | {} |",
            kernel.name,
            kernel.summary,
            bindings.join(", ")
        )
        .expect("writing to a string cannot fail");
    }
    index
}

#[test]
fn the_readme_lists_every_kernel() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders/README.md");
    let readme = std::fs::read_to_string(&path).expect("shaders/README.md is there");
    let (_, listed) = readme
        .split_once("## Kernels\n\n")
        .expect("it has a section `Kernels`");
    let index = index();
    assert!(
        listed == index,
        "shaders/README.md must end with\n\n{index}"
    );
}
