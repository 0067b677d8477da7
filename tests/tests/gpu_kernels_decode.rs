//! Every kernel against its CPU twin, in every variant that the adapter has features for.

use monarch_kernels::{Features, KERNELS, kernel, subgroup_probe};
use monarch_tests::cases::{self, Cases};
use monarch_tests::gpu::{AdapterName, Gpu, check_all};

fn cases_of(name: &str) -> Cases {
    let found = cases::all().into_iter().find(|(kernel, _)| *kernel == name);
    found.unwrap_or_else(|| panic!("no cases for {name}")).1
}

/// A test for each kernel, so that a failure names it and they run side by side.
macro_rules! kernels {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check_all(&Gpu::all(), cases_of(stringify!($name)));
            }
        )*

        #[test]
        fn every_kernel_is_tested() {
            let tested = [$(stringify!($name)),*];
            let kernels: Vec<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
            assert_eq!(tested[..], kernels[..]);
            let listed: Vec<_> = cases::all().into_iter().map(|(name, _)| name).collect();
            assert_eq!(listed, kernels);
        }
    };
}

kernels! {
    advance
    argmax_final
    argmax_partial
    attention_decode
    attention_merge
    conv_in_proj_q4
    embed_q4
    fold
    matvec_q4
    mlp_q4
    qk_norm_rope
    rms_norm
    rope_attention_decode
    short_conv
    subgroup_probe
    swiglu
}

#[test]
fn outliers_stay_finite_in_every_variant() {
    let cases = [None, Some(1e-5)].map(cases::matvec_with_outliers);
    check_all(&Gpu::all(), cases);
}

#[test]
fn this_adapter_has_linear_subgroups_of_its_size() {
    let size = AdapterName::from_env().subgroup_size();
    for workgroup in [32, 256] {
        let found = subgroup_probe::cpu(&subgroup_probe::Geometry { workgroup }, size);
        // `subgroup_probe` holds the device to this.
        assert!(found.is_linear(), "{found:?}");
    }
}

#[test]
fn the_variant_without_subgroups_finds_none() {
    let mut case = cases_of("subgroup_probe").next().expect("there are cases");
    let workgroup = 4;
    let geometry = subgroup_probe::Geometry { workgroup };
    case.overrides = subgroup_probe::overrides(&geometry);
    let found = subgroup_probe::cpu(&geometry, 0);
    assert!(
        !subgroup_probe::Found {
            real_size: 0,
            ..found
        }
        .is_linear()
    );
    case.buffers = vec![monarch_tests::gpu::Buffer::Out(
        monarch_tests::gpu::Values::U32(found.to_words().to_vec()),
    )];
    Gpu::plain().check(&case).expect("zeros");
}

#[test]
fn a_shader_needs_its_feature() {
    // A device without subgroups must refuse the text that uses them: else the variants above
    // might all have been the same.
    let gpu = Gpu::plain();
    let case = cases_of("rms_norm").next().expect("there are cases");
    let text = kernel("rms_norm").wgsl(Features {
        f16: false,
        subgroups: true,
    });
    assert!(gpu.check_text(&case, text).is_err());
    assert!(gpu.check(&case).is_ok());
}
