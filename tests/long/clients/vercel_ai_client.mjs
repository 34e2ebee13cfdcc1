// The Vercel AI SDK, with its provider for servers with OpenAI's paths and with its provider for OpenAI.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import assert from "node:assert";

const [model, prompt, baseURL] = ["captions", "dog, frisbee, catch", process.argv[2]];
const compatible = createOpenAICompatible({ name: "abs", baseURL, apiKey: "none", supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey: "none" });
const options = { prompt, maxRetries: 0 };
const PET = jsonSchema({
  type: "object", properties: { animal: { enum: ["dog", "cat"] }, age: { type: "integer" } },
  required: ["animal", "age"], additionalProperties: false,
});

function requirePet({ animal, age }) {
  assert(["dog", "cat"].includes(animal) && Number.isInteger(age));
}

/** `counted`: a stream has token counts, which the provider for compatible servers does not request by default. */
async function texts(kind, counted = true) {
  assert((await generateText({ model: kind, ...options })).text);
  const stream = streamText({ model: kind, ...options, onError: ({ error }) => { throw error; } });
  let text = "";
  for await (const delta of stream.textStream) text += delta;
  assert(text);
  assert(!counted || (await stream.totalUsage).outputTokens > 0);
}

async function objects(kind) {
  requirePet((await generateText({ model: kind, ...options, output: Output.object({ schema: PET }) })).output);
  const stream = streamText({ model: kind, ...options, output: Output.object({ schema: PET }) });
  requirePet(await stream.output);
}

/** A step that has to call a tool, and one that answers its result. */
async function tools(kind) {
  const fed = [];
  const feed = tool({
    description: "Feeds an animal.", inputSchema: PET,
    execute: (pet) => (requirePet(pet), fed.push(pet), "It ate."),
  });
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "auto" });
  const { steps } = await generateText({ model: kind, ...options, tools: { feed }, stopWhen: stepCountIs(2), prepareStep });
  assert(fed.length > 0 && steps.length === 2);
  const stream = streamText({ model: kind, ...options, tools: { feed }, toolChoice: "required" });
  assert((await stream.toolCalls).length > 0);
}

const CHECKS = {
  compatible_text: () => texts(compatible(model), false),
  compatible_object: () => objects(compatible(model)),
  compatible_tools: () => tools(compatible(model)),
  completion: () => texts(compatible.completionModel(model), false),
  openai_chat: async () => { await texts(openai.chat(model)); await objects(openai.chat(model)); await tools(openai.chat(model)); },
  openai_responses: async () => { await texts(openai(model)); await objects(openai(model)); await tools(openai(model)); },
};

for (const [check, run] of Object.entries(CHECKS)) {
  let error = "";
  try {
    await run();
  } catch (failure) {
    error = `${failure?.stack ?? failure}`;
  }
  console.log(JSON.stringify({ check, error }));
}
