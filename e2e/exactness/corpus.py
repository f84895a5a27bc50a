"""Requests of all forms that reach a chat template or a tokenizer, drawn from a seed."""

import json
import random
import re

from texts import Texts

# A string of this form stands for a JSON number that Python's own writer would change.
RAW = re.compile(r'"@raw:([^"@]*)@"')
RAW_NUMBERS = ["1e5", "1E+5", "-0", "-0.0", "1.0", "1.50", "1e-7", "1e16", "1e22", "123456789012345678901234567890", "-1", "0.1",
               "9007199254740993", "5e-324", "1.7976931348623157e308", "100000.0", "18446744073709551616"]
SCHEMA_WORDS = ["city", "unit", "days", "größe", "名前", "a b", "x", "id", "type", "items"]


class Corpus:
    """Draws requests for one tokenizer."""

    def __init__(self, name, own_tokens, seed, stable):
        self.name, self.random = name, random.Random(f"{seed} {name}")
        self.texts = Texts(self.random, own_tokens)
        self.stable = stable  # whether every rendering must be the same tomorrow
        self.mistral = name.startswith("mistral")  # stricter than templates: it refuses what does not fit
        self.alternating = name == "gemma3"  # its template refuses everything else

    def chance(self, share):
        return self.random.random() < share

    def request(self):
        """One request: its path and its body as JSON text."""
        path, body = self.random.choices(
            [self.chat, self.completion, self.messages, self.responses], [70, 18, 6, 0 if self.mistral else 6])[0]()
        body["model"] = "test-model"
        if self.chance(0.2):
            body["max_tokens" if path != "/v1/responses" else "max_output_tokens"] = 5
        elif path == "/v1/messages":
            body["max_tokens"] = 5
        if self.chance(0.1):
            body["temperature"] = 0.5
        if self.chance(0.1):
            body["stream"] = True
        items = list(body.items())
        if self.chance(0.3):
            self.random.shuffle(items)
        text = json.dumps(dict(items), ensure_ascii=self.chance(0.3), separators=self.random.choice([(",", ":"), (", ", ": ")]))
        return path, RAW.sub(r"\1", text)

    # ---- plain prompts

    def completion(self):
        kind = self.random.randrange(10)
        if kind == 0:
            ids = [self.random.randrange(0, 100_000) for _ in range(self.random.randint(1, 30))]
            prompt = ids if self.chance(0.5) else [ids]
        elif kind == 1:
            prompt = [self.texts.text()]
        else:
            prompt = self.texts.text() or "x"
        body = {"prompt": prompt}
        if self.chance(0.25):
            body["add_special_tokens"] = self.chance(0.5)
        return "/v1/completions", body

    # ---- chats

    def chat(self):
        with_tools = self.chance(0.3)
        body = {"messages": self.conversation(with_tools and not (self.alternating and self.chance(0.8)))}
        if with_tools or self.chance(0.05):
            body["tools"] = [self.tool(number) for number in range(self.random.choice([1, 1, 2, 3]))]
            choice = self.random.choice(["none", "none", "auto", None, "required", "named"])
            if choice == "named":
                body["tool_choice"] = {"type": "function", "function": {"name": body["tools"][0]["function"]["name"]}}
            elif choice:
                body["tool_choice"] = choice
        self.switches(body)
        return "/v1/chat/completions", body

    def switches(self, body):
        arguments = {}
        if self.name == "llama3_2" and (self.stable or self.chance(0.8)):
            arguments["date_string"] = self.random.choice(["26 Jul 2024", "01 Jan 2025", "", "heute"])
        if self.chance(0.08):
            arguments["enable_thinking"] = self.random.choice([True, False, None])
        if self.chance(0.03):
            arguments["bos_token"] = self.random.choice(["", "<x>", self.texts.short()])
        if self.chance(0.03):
            arguments["tools_in_user_message"] = self.chance(0.5)
        if self.chance(0.02):
            arguments["tools"] = [self.tool(0)]
        if self.chance(0.03):
            arguments["custom_variable"] = self.texts.short()
        if self.chance(0.02):
            arguments["add_generation_prompt"] = self.chance(0.5)
        if self.chance(0.01):
            arguments["custom_tools"] = [{"name": self.texts.short(), "n": "@raw:" + self.random.choice(RAW_NUMBERS) + "@"}]
        if self.mistral and self.chance(0.95):
            arguments = {}
        elif arguments or self.chance(0.03):
            body["chat_template_kwargs"] = arguments
        if self.chance(0.1):
            body["add_generation_prompt"] = self.chance(0.3)
        if self.chance(0.08):
            body["continue_final_message"] = True
            body["add_generation_prompt"] = False
            if self.chance(0.7) and body["messages"][-1]["role"] != "assistant":
                body["messages"].append({"role": "assistant", "content": self.content("assistant")})
        if self.chance(0.08):
            body["add_special_tokens"] = self.chance(0.6)
        if self.chance(0.06):
            body["reasoning_effort"] = self.random.choice(["none", "low", "medium", "high"])
        if self.chance(0.02):
            body["documents"] = [{"title": self.texts.short(), "text": self.texts.short()}]

    def conversation(self, with_tools):
        turns = []
        if self.chance(0.45):
            turns.append(self.message("system"))
        if self.chance(0.07):
            turns.insert(self.random.randint(0, len(turns)), self.message("developer"))
        for number in range(self.random.choices([1, 2, 3, 6], [50, 25, 15, 10])[0]):
            if number:
                turns += self.assistant(with_tools)
            turns.append(self.message("user"))
            if self.chance(0.01 if self.alternating else 0.03):
                turns.append(self.message(self.random.choice(["system", "user", "developer", "tool", "function", "critic"])))
        if self.chance(0.12):
            turns += self.assistant(with_tools)
        if self.chance(0.02):
            self.random.shuffle(turns)
        return turns

    def assistant(self, with_tools):
        message = self.message("assistant")
        if not with_tools or self.chance(0.3):
            if self.chance(0.05):
                message["tool_calls"] = self.random.choice([None, []])
            return [message]
        calls = [self.tool_call(number) for number in range(self.random.choice([1, 1, 1, 2, 3]))]
        message["tool_calls"] = calls
        message["content"] = self.random.choice([None, None, "", message.get("content")])
        if self.mistral and self.chance(0.7):
            message["content"] = self.random.choice([None, ""])
        if self.chance(0.05):
            del message["content"]
        results = [self.message("tool") | {"tool_call_id": call.get("id", "x")} for call in calls]
        if self.name == "mistral_spm_v2":  # the only rules that print it
            for result, call in zip(results, calls):
                if self.chance(0.5):
                    result["name"] = call["function"]["name"]
        if self.chance(0.2):
            self.random.shuffle(results)
        return [message, *results] + ([self.message("assistant")] if self.chance(0.5) else [])

    def message(self, role):
        message = {"role": role, "content": self.content(role)}
        if role == "assistant" and self.chance(0.1):
            message[self.random.choice(["reasoning", "reasoning_content"])] = self.random.choice([self.texts.text(), "", None])
        if role == "system" and self.chance(0.03):
            message["content"] = "x-anthropic-billing-header: cc_version=1; h=" + self.texts.short() + self.random.choice(["", "\n", "\nrest"])
        if self.chance(0.04):
            message["name"] = self.texts.short()
        if self.chance(0.04):
            message[self.random.choice(["unknown_key", "task", "tools", "tool_call_id"])] = self.texts.short()
        if self.chance(0.1):
            message = dict(reversed(message.items()))
        return message

    def content(self, role):
        kind = self.random.random()
        if kind < (0.85 if self.mistral else 0.72):
            return self.texts.text()
        if kind < 0.75:
            return ""
        if kind < 0.77:
            return self.texts.trimmed()
        if kind < 0.79 and role == "assistant":
            return None
        return [self.part(role) for _ in range(self.random.choice([0, 1, 1, 2, 3]))]

    def part(self, role):
        kind = self.random.random() * (0.82 if self.mistral else 1)
        text = self.random.choice([self.texts.text(), self.texts.short(), "", self.texts.trimmed()])
        if kind < 0.8:
            part = {"type": "text", "text": text}
            if self.chance(0.15):
                part[self.random.choice(["cache_control", "extra", "detail", "annotations"])] = self.random.choice([{"type": "ephemeral"}, 1.0, None, "x"])
            return part
        if kind < 0.86:
            return text
        if kind < 0.91:
            return {"type": "refusal", "refusal": text}
        if kind < 0.97:
            return {"type": "input_text" if role != "assistant" else "output_text", "text": text}
        if kind < 0.985:
            return {"type": "thinking", "thinking": text}
        return {"type": "text", "text": None if self.chance(0.3) else text, "uuid": "u"}

    # ---- tools

    def value(self, depth):
        kind = self.random.randrange(9 if depth < 3 else 7)
        if kind < 3:
            return self.texts.short()
        if kind == 3:
            return self.random.choice([True, False, None])
        if kind == 4:
            return self.random.randint(-5, 10**self.random.randint(1, 25))
        if kind == 5:
            return self.random.choice([0.5, 1e-7, 1e16, 1e22, 100000.0, -0.0, 3.14159, 2.0])
        if kind == 6:
            return "@raw:" + self.random.choice(RAW_NUMBERS) + "@"
        if kind == 7:
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 3))]
        return {self.random.choice(SCHEMA_WORDS): self.value(depth + 1) for _ in range(self.random.randint(0, 3))}

    def schema(self, depth=0):
        properties = {}
        for name in self.random.sample(SCHEMA_WORDS, self.random.randint(0, 3)):
            properties[name] = {"type": self.random.choice(["string", "integer", "number", "array"]), "description": self.texts.short()}
            if self.chance(0.3):
                properties[name]["enum"] = [self.value(3) for _ in range(2)]
            if self.chance(0.2):
                properties[name]["default"] = self.value(1)
            if depth < 1 and self.chance(0.2):
                properties[name] = self.schema(depth + 1)
        schema = {"type": "object", "properties": properties}
        if self.chance(0.6):
            schema["required"] = list(properties)[:1]
        if self.chance(0.3):
            schema["additionalProperties"] = False
        if self.chance(0.3):
            schema = dict(reversed(schema.items()))
        return schema

    def tool(self, number):
        function = {"name": self.random.choice(["get_weather", "search", "run", "f"]) + (str(number) if number else "")}
        if self.chance(0.85):
            function["description"] = self.random.choice([self.texts.text()[:400], self.texts.short(), "Get <b>it</b> & 'more' \"now\"", None])
        if self.chance(0.9):
            function["parameters"] = self.random.choice([self.schema(), self.schema(), {}, None])
        if self.chance(0.15):
            function["strict"] = self.random.choice([True, False, None])
        if self.chance(0.05):
            function["defer_loading"] = self.chance(0.5)
        if self.chance(0.1):
            function["unknown"] = 1
        if self.chance(0.3):
            function = dict(reversed(function.items()))
        tool = {"type": "function", "function": function}
        if self.chance(0.05):
            tool["defer_loading"] = self.chance(0.5)
        if self.chance(0.05):
            tool["unknown"] = {"x": 1}
        return tool if self.chance(0.7) else dict(reversed(tool.items()))

    def arguments(self):
        kind = self.random.random()
        if kind < 0.8:
            value = {self.random.choice(SCHEMA_WORDS + ["q"]): self.value(0) for _ in range(self.random.randint(0, 4))}
            text = json.dumps(value, ensure_ascii=self.chance(0.5), indent=self.random.choice([None, None, 2]))
            return RAW.sub(r"\1", text)
        return self.random.choice(["", "null", "[]", "[1]", "\"x\"", "{", "{\"a\":1,\"a\":2}", "{\"a\": NaN, \"b\": -Infinity}", "not json", " {} ",
                                   "{\"a\":\"\\u00e9\\n\\ud83d\\ude00\"}", "3", "{\"a\":1}}", "{'a':1}", "{\"a\":1,}", "\u00a0{}", "{\"a\":\"\t\"}"])

    def tool_call(self, number):
        identity = f"call_{number}"
        if self.mistral:
            identity = self.random.choice(["callnumb", "abcDEF12", "chatcmpl-tool-12345678"]) + str(number)
        call = {"id": identity, "type": "function",
                "function": {"name": self.random.choice(["get_weather", "search", "a-b" if self.mistral else "größe"]), "arguments": self.arguments()}}
        if self.chance(0.1):
            call["function"] = dict(reversed(call["function"].items()))
        if self.chance(0.05):
            call["index"] = number
        if self.chance(0.03):
            call["function"]["extra"] = 1
        return call

    # ---- the other two APIs

    def messages(self):
        """`/v1/messages`"""
        turns = []
        for number in range(self.random.choice([1, 2, 3])):
            if number:
                blocks = [{"type": "text", "text": self.texts.text() or "x"}] if self.chance(0.7) else []
                calls = []
                if self.chance(0.4) or not blocks:
                    calls = [{"type": "tool_use", "id": f"toolu0{number}0{n}" if self.mistral else f"toolu_{number}_{n}", "name": "search", "input": {
                        self.random.choice(SCHEMA_WORDS): self.value(1)}} for n in range(self.random.choice([1, 2]))]
                if self.chance(0.15):
                    blocks.insert(0, {"type": "thinking", "thinking": self.texts.short(), "signature": "s"})
                turns.append({"role": "assistant", "content": blocks + calls if calls or self.chance(0.6) else self.texts.text() or "x"})
                results = [{"type": "tool_result", "tool_use_id": call["id"], "content": self.random.choice(
                    [self.texts.text(), [{"type": "text", "text": self.texts.short()}, {"type": "text", "text": self.texts.short()}]])} for call in calls]
                if results:
                    turns.append({"role": "user", "content": results + ([{"type": "text", "text": self.texts.text()}] if self.chance(0.5) else [])})
                    continue
            content = self.texts.text() or "x"
            if self.chance(0.4):
                content = [{"type": "text", "text": self.texts.text()} for _ in range(self.random.choice([1, 2]))]
            turns.append({"role": "user", "content": content})
        body = {"messages": turns}
        if self.chance(0.5):
            body["system"] = self.random.choice([self.texts.text(), [{"type": "text", "text": self.texts.text()}, {
                "type": "text", "text": self.texts.short(), "cache_control": {"type": "ephemeral"}}]])
        if self.chance(0.3):
            body["tools"] = [{"name": "search", "description": self.texts.short(), "input_schema": self.schema()}]
            body["tool_choice"] = {"type": "none"}
        if self.chance(0.1):
            body["thinking"] = {"type": "disabled"}
        if self.name == "llama3_2":
            body["chat_template_kwargs"] = {"date_string": "26 Jul 2024"}
        return "/v1/messages", body

    def responses(self):
        """`/v1/responses`"""
        if self.chance(0.4):
            given = self.texts.text() or "x"
        else:
            given = []
            for number in range(self.random.choice([1, 2, 3])):
                if number and self.chance(0.5):
                    for call in range(self.random.choice([1, 2])):
                        given.append({"type": "function_call", "call_id": f"c{number}{call}", "name": "search", "arguments": self.arguments()})
                    for call in range(self.random.choice([1, 2])):
                        given.append({"type": "function_call_output", "call_id": f"c{number}{call}", "output": self.texts.text()})
                elif number:
                    given.append({"type": "message", "role": "assistant", "content": self.random.choice(
                        [self.texts.text(), [{"type": "output_text", "text": self.texts.text(), "annotations": []}]]), "id": f"m{number}", "status": "completed"})
                content = self.texts.text()
                if self.chance(0.4):
                    content = [{"type": "input_text", "text": self.texts.text()} for _ in range(self.random.choice([1, 2]))]
                given.append({"role": self.random.choice(["user", "user", "user", "user", "developer", "system"]), "content": content})
        body = {"input": given}
        if self.chance(0.4):
            body["instructions"] = self.texts.text()
        if self.chance(0.3):
            body["tools"] = [{"type": "function", "name": "search", "description": self.texts.short(), "parameters": self.schema(), "strict": self.chance(0.5)}]
            body["tool_choice"] = "none"
        if self.chance(0.1):
            body["reasoning"] = {"effort": self.random.choice(["none", "low"])}
        if self.name == "llama3_2":
            body["chat_template_kwargs"] = {"date_string": "26 Jul 2024"}
        return "/v1/responses", body
