// The forms of JSON texts: a schema, and any constraint in JSON.

import { el, labelField } from "../dom.js";
import { TextForm, IncompleteForm, numberInput, numberOf } from "./basic.js";
import { JsonSyntaxError, parseJson, findInJson } from "./json-positions.js";

/** A form whose text is JSON; errors are shown at the value that they name. */
class JsonForm extends TextForm {
  value(text) {
    try {
      return parseJson(text, this.subject);
    } catch (error) {
      if (!(error instanceof JsonSyntaxError)) throw error;
      this.field.show(error.message, error.offset);
      throw new IncompleteForm(error.message);
    }
  }

  text(value) { return JSON.stringify(value, null, 2); }

  show(path, sentence, position) {
    const location = findInJson(this.field.text, path);
    if (!location) this.field.show(sentence);
    else if (position === null || !location.complete) this.field.show(sentence, location.offset);
    else this.field.show(sentence, location.inString(position));
  }
}

export class SchemaForm extends JsonForm {
  constructor(change) {
    super(change, {
      name: "json_schema", label: "JSON schema", rows: 9, placeholder: '{"type": "object"}',
      emptyMessage: "Write a JSON schema.",
    });
    this.subject = "The schema";
    this.whitespace = el("select", { change },
      el("option", { value: "spaced" }, "after , and :"), el("option", { value: "compact" }, "none (compact)"),
      el("option", { value: "pretty" }, "indented by 2"), el("option", { value: "flexible" }, "flexible"), el("option", { value: "any" }, "any"));
    this.order = el("select", { change },
      el("option", { value: "schema" }, "as in the schema"), el("option", { value: "any" }, "any"));
    this.depth = numberInput(change, { placeholder: "no bound" });
    this.element.append(el("div", { class: "grid-fields" },
      labelField("white space", this.whitespace), labelField("order of properties", this.order),
      labelField("depth of what is left open", this.depth)));
  }

  read() {
    const depth = numberOf(this.depth);
    return {
      ...super.read(), ...(this.whitespace.value === "spaced" ? {} : { whitespace: this.whitespace.value }),
      ...(this.order.value === "schema" ? {} : { property_order: this.order.value }),
      ...(depth === undefined ? {} : { max_depth: depth }),
    };
  }

  write(constraint) {
    super.write(constraint);
    this.whitespace.value = constraint.whitespace ?? "spaced";
    this.order.value = constraint.property_order ?? "schema";
    this.depth.value = constraint.max_depth ?? "";
  }

  show(path, sentence, position) {
    super.show(path.replace(/^json_schema\.?/, ""), sentence, position);
  }
}

/** Any constraint as JSON, for constraints that no other form can express. */
export class RawForm extends JsonForm {
  constructor(change) {
    super(change, {
      name: "", label: "Constraint as JSON", rows: 9, placeholder: '{"all": [{"regex": "…"}, {"ltlf": "…"}]}',
      emptyMessage: "Write a constraint as JSON.", leading: false,
    });
    this.subject = "The constraint";
  }

  /** Any JSON value: the service says what is wrong with one that is no object, and suggests what was meant. */
  read() { return super.read()[""]; }

  write(constraint) { this.field.text = this.text(constraint); }
}
