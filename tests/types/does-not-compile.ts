// Mistakes that the types must catch: each expected error that does not come is an error itself.
import { load, support, type Message, type Model, type MonarchError, type Progress } from "monarch-webgpu";

export async function wrongLoads(): Promise<void> {
  // @ts-expect-error a source is needed
  await load();
  // @ts-expect-error a response is no address
  await load(new Response());
  // @ts-expect-error unknown option
  await load("m/", { maxTokens: 1 });
  // @ts-expect-error unknown plan
  await load("m/", { plan: "quick" });
  // @ts-expect-error unknown ability
  await load("m/", { device: { allowF17: true } });
  // @ts-expect-error the verdict is a status, not a boolean
  const verdict: boolean = await support("m/");
  console.log(verdict);
}

export async function wrongCalls(model: Model): Promise<void> {
  // @ts-expect-error snake case
  model.generate("x", { max_tokens: 1 });
  // @ts-expect-error a number of tokens is a number
  model.generate("x", { maxTokens: "1" });
  // @ts-expect-error stop takes a list
  model.generate("x", { stop: "\n" });
  // @ts-expect-error ids belong into an object
  model.generate([1, 2, 3]);
  // @ts-expect-error tools belong to chat
  model.generate("x", { tools: [] });
  // @ts-expect-error a conversation is a list
  model.chat({ role: "user", content: "x" });
  // @ts-expect-error unknown role
  model.chat([{ role: "robot", content: "x" }]);
  // @ts-expect-error content is missing
  const message: Message = { role: "user" };
  // @ts-expect-error a generation is not its text
  const text: string = model.generate("x");
  // @ts-expect-error a chunk is not its text
  for await (const chunk of model.generate("x")) document.body.append(chunk);
  // @ts-expect-error a generation is not iterable without await
  for (const chunk of model.generate("x")) console.log(chunk);
  // @ts-expect-error facts are read-only
  model.info.contextTokens = 1;
  console.log(message, text);
}

export function wrongReads(progress: Progress, error: MonarchError): void {
  // @ts-expect-error bytes belong to the fetch phase only
  console.log(progress.loadedBytes);
  // @ts-expect-error no such code
  console.log(error.code === "oops");
  // @ts-expect-error an error is read-only
  error.code = "aborted";
}

// @ts-expect-error the insides are not part of the package
export { EdgeModel } from "monarch-webgpu/model.js";
