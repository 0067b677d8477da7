// A headless Chromium whose WebGPU runs on the CPU (SwiftShader), the same on every machine.
import { chromium } from "playwright-core";

const FLAGS = [
  "--no-sandbox", // tests run as root in containers
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--enable-unsafe-webgpu",
  "--use-webgpu-adapter=swiftshader",
  "--enable-features=Vulkan",
];

/**
 * Starts Chromium. `MONARCH_CHROMIUM` names another binary than the system's, and
 * `MONARCH_CHROMIUM_FLAGS`, a JSON array, other flags.
 */
export function launch() {
  const { MONARCH_CHROMIUM, MONARCH_CHROMIUM_FLAGS } = process.env;
  return chromium.launch({
    executablePath: MONARCH_CHROMIUM ?? "/usr/bin/chromium",
    args: MONARCH_CHROMIUM_FLAGS === undefined ? FLAGS : JSON.parse(MONARCH_CHROMIUM_FLAGS),
  });
}
