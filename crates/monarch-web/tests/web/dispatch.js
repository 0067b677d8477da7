// The body of `async (request) => answer`: WebGPU without wgpu in between, so that what is tested is
// the browser's own compiler. `request` and `answer` are described in kernels.rs.
const adapter = await navigator.gpu.requestAdapter();
if (request.ask === "features") return [...adapter.features];

globalThis.monarchTestDevices ??= new Map();
const devices = globalThis.monarchTestDevices;
const key = request.features.join();
if (!devices.has(key)) devices.set(key, await adapter.requestDevice({ requiredFeatures: request.features }));
const device = devices.get(key);

device.pushErrorScope("validation");
const module = device.createShaderModule({ code: request.wgsl });
const { messages } = await module.getCompilationInfo();
const complaint = messages.find(({ type }) => type !== "info");
if (complaint !== undefined || request.ask === "compile") {
  const error = await device.popErrorScope();
  if (complaint !== undefined) return `line ${complaint.lineNum}: ${complaint.message}`;
  return error === null ? undefined : error.message;
}

const { STORAGE, COPY_SRC, COPY_DST, MAP_READ } = GPUBufferUsage;
const storage = { read: "read-only-storage", write: "storage" };
const bindGroupLayout = device.createBindGroupLayout({
  entries: request.bindings.map(({ access }, binding) => ({
    binding,
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type: storage[access] },
  })),
});
const pipeline = device.createComputePipeline({
  layout: device.createPipelineLayout({ bindGroupLayouts: [bindGroupLayout] }),
  compute: { module, entryPoint: "main", constants: request.overrides },
});
const buffers = request.bindings.map(({ words }) => {
  const buffer = device.createBuffer({ size: words.byteLength, usage: STORAGE | COPY_SRC | COPY_DST });
  device.queue.writeBuffer(buffer, 0, words);
  return buffer;
});
const bindGroup = device.createBindGroup({
  layout: bindGroupLayout,
  entries: request.bindings.map(({ offset, size }, binding) => ({
    binding,
    resource: { buffer: buffers[binding], offset, size },
  })),
});
const encoder = device.createCommandEncoder();
const pass = encoder.beginComputePass();
pass.setPipeline(pipeline);
pass.setBindGroup(0, bindGroup);
pass.dispatchWorkgroups(...request.workgroups);
pass.end();
const copies = buffers.map((buffer, binding) => {
  if (request.bindings[binding].access !== "write") return undefined;
  const copy = device.createBuffer({ size: buffer.size, usage: COPY_DST | MAP_READ });
  encoder.copyBufferToBuffer(buffer, 0, copy, 0, buffer.size);
  return copy;
});
device.queue.submit([encoder.finish()]);
const error = await device.popErrorScope();
if (error !== null) return error.message;

const written = await Promise.all(
  copies.map(async (copy) => {
    if (copy === undefined) return undefined;
    await copy.mapAsync(GPUMapMode.READ);
    const words = new Uint32Array(copy.getMappedRange().slice(0));
    copy.destroy();
    return words;
  }),
);
buffers.forEach((buffer) => buffer.destroy());
return written;
