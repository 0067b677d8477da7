import { flag, integer, oneOf, type Checks } from "./options.js";

/**
 * Which GPU to open, and which of its optional abilities to leave unused. Everything that the
 * adapter has is used, unless it is switched off or limited here.
 */
export interface DeviceOptions {
  /** Use `shader-f16`. */
  readonly allowF16?: boolean | undefined;
  /** Use `subgroups`. */
  readonly allowSubgroups?: boolean | undefined;
  /** Use `timestamp-query`. */
  readonly allowTimestamps?: boolean | undefined;
  /** Which of several GPUs: the fast one (the default), or the frugal one. */
  readonly powerPreference?: "high-performance" | "low-power" | undefined;
  /** Largest storage binding, in bytes, even where the adapter allows more. */
  readonly maxBindingBytes?: number | undefined;
  /** Most invocations in a workgroup, even where the adapter allows more. */
  readonly maxInvocations?: number | undefined;
}

/** The checks that {@link DeviceOptions} stand for. */
export const deviceChecks: Checks<DeviceOptions> = {
  allowF16: flag,
  allowSubgroups: flag,
  allowTimestamps: flag,
  powerPreference: oneOf("high-performance", "low-power"),
  maxBindingBytes: integer(1, Number.MAX_SAFE_INTEGER),
  maxInvocations: integer(1, 2 ** 32 - 1),
};
