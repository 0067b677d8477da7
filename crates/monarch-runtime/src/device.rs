//! The GPU device: what the adapter offers, what was enabled, and the browser's peculiarities.
//!
//! Every work-around for a browser or for wgpu's browser backend lives in this file.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::error::DeviceError;
use crate::probe;

/// WebGPU features the engine uses when the adapter has them, by their names in the specification.
pub const WANTED_FEATURES: [&str; 3] = ["timestamp-query", "shader-f16", "subgroups"];

/// How to choose an adapter and what to leave switched off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeviceOptions {
    /// Use `shader-f16` when the adapter has it.
    pub allow_f16: bool,
    /// Use `subgroups` when the adapter has it.
    pub allow_subgroups: bool,
    /// Use `timestamp-query` when the adapter has it.
    pub allow_timestamps: bool,
    /// Which of several adapters to prefer.
    pub power_preference: PowerPreference,
    /// Largest storage binding, in bytes, even when the adapter allows more.
    pub max_binding_bytes: Option<u64>,
    /// Most invocations in a workgroup, even when the adapter allows more.
    pub max_invocations: Option<u32>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            allow_f16: true,
            allow_subgroups: true,
            allow_timestamps: true,
            power_preference: PowerPreference::HighPerformance,
            max_binding_bytes: None,
            max_invocations: None,
        }
    }
}

/// Which adapter to prefer on a machine with several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PowerPreference {
    /// The fast one.
    #[default]
    HighPerformance,
    /// The frugal one.
    LowPower,
}

/// What is known about the adapter and about the device made from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdapterFacts {
    /// Vendor, as the browser or driver names it.
    pub vendor: String,
    /// Architecture, where the browser tells it.
    pub architecture: String,
    /// Device, where it is told.
    pub device: String,
    /// Human-readable description.
    pub description: String,
    /// `browser` or the native API's name.
    pub backend: String,
    /// True when a CPU plays the GPU.
    pub is_software: bool,
    /// Those of [`WANTED_FEATURES`] that the adapter has.
    pub features: Vec<String>,
    /// Those that are enabled on the device; empty before a device exists.
    pub enabled_features: Vec<String>,
    /// Smallest and largest subgroup the adapter announces; 0 when unknown.
    pub subgroup_sizes: [u32; 2],
    /// Subgroup size measured by a probe shader; 0 without subgroups.
    pub subgroup_size: u32,
    /// Limits that matter to the engine: the adapter's until a device exists, then the device's.
    pub limits: DeviceLimits,
}

/// The WebGPU limits that shapes and geometries are checked against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceLimits {
    /// `maxStorageBufferBindingSize`, bytes.
    pub max_binding_bytes: u64,
    /// `maxBufferSize`, bytes.
    pub max_buffer_bytes: u64,
    /// `maxComputeInvocationsPerWorkgroup`.
    pub max_invocations: u32,
    /// `maxComputeWorkgroupStorageSize`, bytes.
    pub max_workgroup_bytes: u32,
    /// `maxStorageBuffersPerShaderStage`.
    pub max_storage_buffers: u32,
    /// `maxComputeWorkgroupsPerDimension`.
    pub max_workgroups: u32,
}

impl DeviceLimits {
    fn of(limits: &wgpu::Limits) -> Self {
        Self {
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_invocations: limits
                .max_compute_invocations_per_workgroup
                .min(limits.max_compute_workgroup_size_x),
            max_workgroup_bytes: limits.max_compute_workgroup_storage_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroups: limits.max_compute_workgroups_per_dimension,
        }
    }
}

/// What a model needs of a device; see [`crate::needs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNeeds {
    /// Largest buffer that must be bound whole, bytes.
    pub binding_bytes: u64,
    /// Largest buffer, bytes.
    pub buffer_bytes: u64,
    /// All buffers together, bytes.
    pub total_bytes: u64,
}

impl DeviceNeeds {
    /// The limits that are too small, each as the error it would be.
    pub fn unmet(&self, limits: &DeviceLimits) -> Vec<DeviceError> {
        [
            (
                "maxStorageBufferBindingSize",
                self.binding_bytes,
                limits.max_binding_bytes,
            ),
            ("maxBufferSize", self.buffer_bytes, limits.max_buffer_bytes),
        ]
        .into_iter()
        .filter(|(_, needed, available)| needed > available)
        .map(|(limit, needed, available)| DeviceError::Limit {
            limit,
            needed,
            available,
        })
        .collect()
    }
}

/// An open device with its queue.
pub struct Gpu {
    /// The device.
    pub(crate) device: wgpu::Device,
    /// Its queue.
    pub(crate) queue: wgpu::Queue,
    facts: AdapterFacts,
    fault: Fault,
}

/// First error the device reported outside an error scope, or the reason of its loss.
#[derive(Clone, Default)]
pub(crate) struct Fault(Arc<Mutex<Option<DeviceError>>>);

impl Fault {
    fn set(&self, error: DeviceError) {
        let mut slot = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.get_or_insert(error);
    }

    /// The error, if there was one. It stays: a device that failed once is not trusted again.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        let slot = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        slot.clone().map_or(Ok(()), Err)
    }
}

impl Gpu {
    /// Asks for an adapter and looks at it, without opening a device.
    pub async fn inspect(options: &DeviceOptions) -> Result<AdapterFacts, DeviceError> {
        let adapter = platform::request_adapter(options).await?;
        Ok(adapter.facts())
    }

    /// Opens a device with every wanted feature that the adapter has and `options` allow, and with limits raised to
    /// `needs`, never above the adapter's.
    pub async fn request(
        options: &DeviceOptions,
        needs: &DeviceNeeds,
    ) -> Result<Self, DeviceError> {
        let adapter = platform::request_adapter(options).await?;
        let mut facts = adapter.facts();
        let wanted: Vec<&str> = WANTED_FEATURES
            .into_iter()
            .filter(|name| facts.features.iter().any(|has| has == name))
            .filter(|name| match *name {
                "shader-f16" => options.allow_f16,
                "subgroups" => options.allow_subgroups,
                _ => options.allow_timestamps,
            })
            .collect();
        let limits = required_limits(&adapter.limits(), options, needs)?;
        let (device, queue) = adapter.open(&wanted, &limits).await?;

        let fault = Fault::default();
        let on_error = fault.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            on_error.set(DeviceError::from(error))
        }));
        let on_loss = fault.clone();
        device.set_device_lost_callback(move |reason, message| {
            // Dropping the device is a normal end, not a loss.
            if reason != wgpu::DeviceLostReason::Destroyed {
                on_loss.set(DeviceError::Lost { message });
            }
        });

        facts.enabled_features = platform::enabled_features(&device);
        facts.limits = DeviceLimits::of(&limits);
        if let Some(missing) = wanted
            .iter()
            .find(|name| !facts.enabled_features.iter().any(|has| has == *name))
        {
            return Err(DeviceError::FeatureLost {
                feature: (*missing).to_owned(),
            });
        }
        let mut gpu = Self {
            device,
            queue,
            facts,
            fault,
        };
        if gpu.has("subgroups") {
            let found = probe::subgroups(&gpu).await?;
            if found.is_linear() {
                gpu.facts.subgroup_size = found.reported_size;
            } else {
                // Lanes do not follow local_invocation_index: kernels could not find their rows.
                gpu.facts
                    .enabled_features
                    .retain(|name| name != "subgroups");
            }
        }
        Ok(gpu)
    }

    /// What is known about the adapter and device.
    pub fn facts(&self) -> &AdapterFacts {
        &self.facts
    }

    /// Whether a feature is enabled and in use.
    pub fn has(&self, feature: &str) -> bool {
        self.facts
            .enabled_features
            .iter()
            .any(|name| name == feature)
    }

    /// The first error the device reported on its own, if any.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.fault.check()
    }

    /// Waits for a callback of the GPU. Browsers call back by themselves; native devices are polled until they do.
    pub(crate) fn poll(&self) -> Result<(), DeviceError> {
        #[cfg(not(target_arch = "wasm32"))]
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|error| DeviceError::Lost {
                message: error.to_string(),
            })?;
        Ok(())
    }
}

/// WebGPU's default limits, raised to what is needed.
fn required_limits(
    adapter: &wgpu::Limits,
    options: &DeviceOptions,
    needs: &DeviceNeeds,
) -> Result<wgpu::Limits, DeviceError> {
    let mut limits = wgpu::Limits::default();
    // Matrices are cut into bindings of the granted size, so only what cannot be cut has to fit.
    let allowed = options
        .max_binding_bytes
        .unwrap_or(u64::MAX)
        .min(adapter.max_storage_buffer_binding_size);
    let mut available = DeviceLimits::of(adapter);
    available.max_binding_bytes = allowed;
    if let Some(error) = needs.unmet(&available).into_iter().next() {
        return Err(error);
    }
    if let Some(max) = options.max_binding_bytes {
        limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(max);
    }
    limits.max_storage_buffer_binding_size = limits
        .max_storage_buffer_binding_size
        .max(needs.binding_bytes.next_multiple_of(256))
        .min(allowed);
    limits.max_buffer_size = limits
        .max_buffer_size
        .max(needs.buffer_bytes.next_multiple_of(256))
        .min(adapter.max_buffer_size);
    // The largest workgroup any tuning asks for; geometry is cut to what was granted.
    let invocations = options
        .max_invocations
        .unwrap_or(1024)
        .min(adapter.max_compute_invocations_per_workgroup);
    limits.max_compute_invocations_per_workgroup = invocations;
    limits.max_compute_workgroup_size_x = invocations.min(adapter.max_compute_workgroup_size_x);
    limits.max_compute_workgroup_storage_size = limits
        .max_compute_workgroup_storage_size
        .max(32 * 1024)
        .min(adapter.max_compute_workgroup_storage_size);
    limits.max_storage_buffers_per_shader_stage = limits
        .max_storage_buffers_per_shader_stage
        .min(adapter.max_storage_buffers_per_shader_stage);
    Ok(limits)
}

#[cfg(not(target_arch = "wasm32"))]
mod platform {
    //! Native adapters through wgpu.

    use super::{AdapterFacts, DeviceLimits, DeviceOptions, PowerPreference};
    use crate::error::DeviceError;

    const FEATURES: [(&str, wgpu::Features); 3] = [
        ("timestamp-query", wgpu::Features::TIMESTAMP_QUERY),
        ("shader-f16", wgpu::Features::SHADER_F16),
        ("subgroups", wgpu::Features::SUBGROUP),
    ];

    pub(super) struct Adapter(wgpu::Adapter);

    pub(super) async fn request_adapter(options: &DeviceOptions) -> Result<Adapter, DeviceError> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let power_preference = match options.power_preference {
            PowerPreference::HighPerformance => wgpu::PowerPreference::HighPerformance,
            PowerPreference::LowPower => wgpu::PowerPreference::LowPower,
        };
        instance
            .request_adapter(&wgpu::RequestAdapterOptions {
                power_preference,
                ..Default::default()
            })
            .await
            .map(Adapter)
            .map_err(|error| DeviceError::NoAdapter {
                message: error.to_string(),
            })
    }

    impl Adapter {
        pub(super) fn facts(&self) -> AdapterFacts {
            let info = self.0.get_info();
            let features = self.0.features();
            AdapterFacts {
                vendor: format!("{:#06x}", info.vendor),
                architecture: String::new(),
                device: info.name,
                description: format!("{} {}", info.driver, info.driver_info)
                    .trim()
                    .to_owned(),
                backend: info.backend.to_string(),
                is_software: info.device_type == wgpu::DeviceType::Cpu,
                features: FEATURES
                    .iter()
                    .filter(|(_, flag)| features.contains(*flag))
                    .map(|(name, _)| (*name).to_owned())
                    .collect(),
                enabled_features: Vec::new(),
                subgroup_sizes: [info.subgroup_min_size, info.subgroup_max_size],
                subgroup_size: 0,
                limits: DeviceLimits::of(&self.limits()),
            }
        }

        pub(super) fn limits(&self) -> wgpu::Limits {
            self.0.limits()
        }

        pub(super) async fn open(
            &self,
            wanted: &[&str],
            limits: &wgpu::Limits,
        ) -> Result<(wgpu::Device, wgpu::Queue), DeviceError> {
            let required_features = FEATURES
                .iter()
                .filter(|(name, _)| wanted.contains(name))
                .fold(wgpu::Features::empty(), |features, (_, flag)| {
                    features | *flag
                });
            self.0
                .request_device(&wgpu::DeviceDescriptor {
                    label: Some("monarch"),
                    required_features,
                    required_limits: limits.clone(),
                    ..Default::default()
                })
                .await
                .map_err(|error| DeviceError::Refused {
                    message: error.to_string(),
                })
        }
    }

    pub(super) fn enabled_features(device: &wgpu::Device) -> Vec<String> {
        let features = device.features();
        FEATURES
            .iter()
            .filter(|(_, flag)| features.contains(*flag))
            .map(|(name, _)| (*name).to_owned())
            .collect()
    }
}

#[cfg(target_arch = "wasm32")]
mod platform {
    //! The browser's adapter.
    //!
    //! wgpu's browser backend knows no `subgroups`, sends limit names that a newer browser may have dropped, and does
    //! not tell the adapter's own words. So the adapter is requested here, and wgpu is led to adopt it: for the length
    //! of one synchronous call `navigator.gpu.requestAdapter` answers with our adapter, and for the length of another
    //! our adapter's own `requestDevice` corrects the descriptor. No prototype is touched.

    use js_sys::{Array, Function, Object, Promise, Reflect, global};
    use wasm_bindgen::prelude::*;
    use wasm_bindgen_futures::JsFuture;

    use super::{AdapterFacts, DeviceLimits, DeviceOptions, PowerPreference, WANTED_FEATURES};
    use crate::error::DeviceError;

    pub(super) struct Adapter {
        raw: JsValue,
        adapter: wgpu::Adapter,
    }

    fn get(object: &JsValue, key: &str) -> JsValue {
        Reflect::get(object, &key.into()).unwrap_or(JsValue::UNDEFINED)
    }

    fn text(object: &JsValue, key: &str) -> String {
        get(object, key).as_string().unwrap_or_default()
    }

    fn number(object: &JsValue, key: &str) -> f64 {
        get(object, key).as_f64().unwrap_or_default()
    }

    fn describe(error: &JsValue) -> String {
        error
            .dyn_ref::<js_sys::Error>()
            .map(|error| String::from(error.message()))
            .unwrap_or_else(|| format!("{error:?}"))
    }

    /// Which of `WANTED_FEATURES` a `GPUSupportedFeatures` set has.
    fn features_in(set: &JsValue) -> Vec<String> {
        let Some(has) = get(set, "has").dyn_ref::<Function>().cloned() else {
            return Vec::new();
        };
        WANTED_FEATURES
            .into_iter()
            .filter(|name| {
                has.call1(set, &(*name).into())
                    .is_ok_and(|found| found.is_truthy())
            })
            .map(str::to_owned)
            .collect()
    }

    /// Replaces the property `key` of `object` while `run` runs, then puts back exactly what was there.
    fn with_property<T>(
        object: &JsValue,
        key: &str,
        value: &JsValue,
        run: impl FnOnce() -> T,
    ) -> T {
        let target: &Object = object.unchecked_ref();
        let own = Object::get_own_property_descriptor(target, &key.into());
        let replacement = Object::new();
        let set = |name: &str, value: &JsValue| {
            Reflect::set(&replacement, &name.into(), value).unwrap_or(false)
        };
        set("value", value);
        set("configurable", &JsValue::TRUE);
        Object::define_property(target, &key.into(), &replacement);
        let result = run();
        if own.is_undefined() {
            Reflect::delete_property(target, &key.into()).unwrap_or(false);
        } else {
            Object::define_property(target, &key.into(), own.unchecked_ref());
        }
        result
    }

    pub(super) async fn request_adapter(options: &DeviceOptions) -> Result<Adapter, DeviceError> {
        let gpu = get(&get(&global(), "navigator"), "gpu");
        let Some(request) = get(&gpu, "requestAdapter").dyn_ref::<Function>().cloned() else {
            return Err(DeviceError::NoWebGpu);
        };
        let preference = match options.power_preference {
            PowerPreference::HighPerformance => "high-performance",
            PowerPreference::LowPower => "low-power",
        };
        let wanted = Object::new();
        let _ = Reflect::set(&wanted, &"powerPreference".into(), &preference.into());
        let failed = |error: JsValue| DeviceError::NoAdapter {
            message: describe(&error),
        };
        let promise: Promise = request
            .call1(&gpu, &wanted)
            .map_err(failed)?
            .unchecked_into();
        let raw = JsFuture::from(promise).await.map_err(failed)?;
        if raw.is_null() || raw.is_undefined() {
            return Err(DeviceError::NoAdapter {
                message: "requestAdapter() answered null".to_owned(),
            });
        }

        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let ours = raw.clone();
        let answer = Closure::<dyn FnMut() -> Promise>::new(move || Promise::resolve(&ours));
        let future = with_property(&gpu, "requestAdapter", answer.as_ref(), || {
            instance.request_adapter(&wgpu::RequestAdapterOptions::default())
        });
        let adapter = future.await.map_err(|error| DeviceError::NoAdapter {
            message: error.to_string(),
        })?;
        Ok(Adapter { raw, adapter })
    }

    impl Adapter {
        pub(super) fn facts(&self) -> AdapterFacts {
            let info = get(&self.raw, "info");
            let words =
                ["vendor", "architecture", "device", "description"].map(|key| text(&info, key));
            let is_software = get(&info, "isFallbackAdapter").is_truthy()
                || words.iter().any(|word| {
                    let word = word.to_lowercase();
                    ["swiftshader", "llvmpipe", "lavapipe", "basic render"]
                        .iter()
                        .any(|name| word.contains(name))
                });
            let [vendor, architecture, device, description] = words;
            AdapterFacts {
                vendor,
                architecture,
                device,
                description,
                backend: "browser".to_owned(),
                is_software,
                features: features_in(&get(&self.raw, "features")),
                enabled_features: Vec::new(),
                subgroup_sizes: ["subgroupMinSize", "subgroupMaxSize"]
                    .map(|key| number(&info, key) as u32),
                subgroup_size: 0,
                limits: DeviceLimits::of(&self.limits()),
            }
        }

        pub(super) fn limits(&self) -> wgpu::Limits {
            self.adapter.limits()
        }

        pub(super) async fn open(
            &self,
            wanted: &[&str],
            limits: &wgpu::Limits,
        ) -> Result<(wgpu::Device, wgpu::Queue), DeviceError> {
            let features = Array::new();
            for name in wanted {
                features.push(&(*name).into());
            }
            let raw = self.raw.clone();
            let request = get(&raw, "requestDevice").unchecked_into::<Function>();
            let open = Closure::<dyn FnMut(JsValue) -> JsValue>::new(move |descriptor: JsValue| {
                // Only features and limits that this browser lists: an unknown name is a refused device.
                let _ = Reflect::set(&descriptor, &"requiredFeatures".into(), &features);
                let known = get(&raw, "limits");
                let asked = get(&descriptor, "requiredLimits");
                let kept = Object::new();
                for key in Object::keys(asked.unchecked_ref::<Object>()).iter() {
                    if Reflect::has(&known, &key).unwrap_or(false) {
                        let value = Reflect::get(&asked, &key).unwrap_or(JsValue::UNDEFINED);
                        let _ = Reflect::set(&kept, &key, &value);
                    }
                }
                let _ = Reflect::set(&descriptor, &"requiredLimits".into(), &kept);
                request
                    .call1(&raw, &descriptor)
                    .unwrap_or_else(|error| Promise::reject(&error).into())
            });
            let descriptor = wgpu::DeviceDescriptor {
                label: Some("monarch"),
                required_limits: limits.clone(),
                ..Default::default()
            };
            let future = with_property(&self.raw, "requestDevice", open.as_ref(), || {
                self.adapter.request_device(&descriptor)
            });
            future.await.map_err(|error| DeviceError::Refused {
                message: error.to_string(),
            })
        }
    }

    pub(super) fn enabled_features(device: &wgpu::Device) -> Vec<String> {
        let raw: Option<&JsValue> = device.as_webgpu().map(|device| device.as_ref());
        raw.map(|device| features_in(&get(device, "features")))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter() -> wgpu::Limits {
        wgpu::Limits {
            max_storage_buffer_binding_size: 1 << 30,
            max_buffer_size: 1 << 31,
            max_compute_invocations_per_workgroup: 256,
            max_compute_workgroup_size_x: 256,
            max_compute_workgroup_storage_size: 16 * 1024,
            ..wgpu::Limits::default()
        }
    }

    #[test]
    fn limits_are_what_is_needed_and_never_above_the_adapter() {
        let needs = DeviceNeeds {
            binding_bytes: 200 << 20,
            buffer_bytes: 300 << 20,
            total_bytes: 0,
        };
        let limits = required_limits(&adapter(), &DeviceOptions::default(), &needs).unwrap();
        assert_eq!(limits.max_storage_buffer_binding_size, 200 << 20);
        assert_eq!(limits.max_buffer_size, 300 << 20);
        assert_eq!(limits.max_compute_invocations_per_workgroup, 256);
        assert_eq!(limits.max_compute_workgroup_storage_size, 16 * 1024);
    }

    #[test]
    fn a_need_above_the_adapter_is_refused_with_both_numbers() {
        let needs = DeviceNeeds {
            binding_bytes: 2 << 30,
            buffer_bytes: 2 << 30,
            total_bytes: 0,
        };
        let error = required_limits(&adapter(), &DeviceOptions::default(), &needs).unwrap_err();
        assert_eq!(
            error,
            DeviceError::Limit {
                limit: "maxStorageBufferBindingSize",
                needed: 2 << 30,
                available: 1 << 30
            }
        );
    }
}
