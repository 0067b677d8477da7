// Gives Node the `navigator.gpu` of a browser: Dawn, the WebGPU of Chromium, on whatever Vulkan driver is selected.
//
//   NODE_OPTIONS="--import /path/to/dawn.mjs"
import { create, globals } from "webgpu";

Object.assign(globalThis, globals);
Object.defineProperty(globalThis, "navigator", { value: { gpu: create([]) }, configurable: true });
globalThis.Window ??= class Window {}; // wgpu asks whether it runs in a window or in a worker
